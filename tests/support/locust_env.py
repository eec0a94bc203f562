"""locust in an environment of its own, var/test-locust or $KVADMIN_TEST_LOCUST: it replaces Python's sockets
by gevent's and brings a web server, neither of which belongs beside the tests.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from kvadmin.env import BASE_DIR

PACKAGE = "locust==2.47.0"


def executable() -> Path:
    """``locust``, installed if it is not there yet (half a minute)."""
    given = os.environ.get("KVADMIN_TEST_LOCUST")
    folder = Path(given).expanduser() if given else BASE_DIR / "var" / "test-locust"
    found, stamp = folder / "bin" / "locust", folder / ".kvadmin-complete"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != PACKAGE:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", PACKAGE]
            subprocess.run(pip, check=True, stdin=subprocess.DEVNULL)
            stamp.write_text(PACKAGE)
    return found
