from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from engines.ssh.session import Result


class LocalSession:
    def run(
        self, script: str, *, args: Sequence[str] = (), stdin: bytes = b"", timeout_s: float = 30
    ) -> Result:
        done = subprocess.run(
            ["/bin/sh", "-c", script, "sh", *args],
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
            cwd=os.environ["HOME"],
            env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "LC_ALL": "C"},
            start_new_session=True,
        )
        return Result(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode())

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        if not Path(path).exists():
            return b""
        with Path(path).open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def write_file(self, path: str, data: bytes, mode: int = 0o600) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        Path(path).write_bytes(data)
        Path(path).chmod(mode)

    def size(self, path: str) -> int | None:
        return Path(path).stat().st_size if Path(path).exists() else None

    def close(self) -> None:
        pass
