"""Names each package that a requirements file pins and that is missing here or has another version.

Usage: python tools/pins.py requirements.txt; the status is 0 when every pin is satisfied. Needs nothing
but the standard library.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s#;]+)")


def pins(path: Path) -> dict[str, str]:
    """Name to version, of the file and of those it includes."""
    found: dict[str, str] = {}
    for line in path.read_text().splitlines():
        if line.startswith("-r "):
            found |= pins(path.parent / line[3:].strip())
        elif match := PIN.match(line):
            found[match[1]] = match[2]
    return found


def unsatisfied(wanted: dict[str, str]) -> list[str]:
    wrong = []
    for name, number in wanted.items():
        try:
            have = version(name)
        except PackageNotFoundError:
            have = "missing"
        if have != number:
            wrong.append(f"{name}=={number} ({have})")
    return wrong


if __name__ == "__main__":
    wrong = unsatisfied(pins(Path(sys.argv[1])))
    for line in wrong:
        print(line)
    sys.exit(bool(wrong))
