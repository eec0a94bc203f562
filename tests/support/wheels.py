"""Tiny packages for tests that install: a wheel folder with a ``vllm`` that only knows its version."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

MAIN = """
import sys

def main():
    if "--version" in sys.argv:
        print("{version}")
        return 0
    print("serving is not in this one", file=sys.stderr)
    return 1
"""

BACKEND = """
import pathlib, time, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    gate = pathlib.Path({gate!r})
    pathlib.Path({gate!r} + ".reached").touch()
    while not gate.exists():
        time.sleep(0.05)
    name = "slowpart-1.0-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder) / name, "w") as wheel:
        wheel.writestr("slowpart/__init__.py", "")
        wheel.writestr("slowpart-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: slowpart\\nVersion: 1.0\\n")
        wheel.writestr("slowpart-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("slowpart-1.0.dist-info/RECORD", "")
    return name
"""  # noqa: E501


def write_wheel(
    folder: Path, name: str, version: str, *, requires: Iterable[str] = (), main: str = ""
) -> Path:
    """A pure wheel; with ``main`` it also has a command of the package's name (without -cpu)."""
    package, info = name.replace("-", "_"), f"{name.replace('-', '_')}-{version}.dist-info"
    files = {
        f"{package}/__init__.py": main.replace("{version}", version),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {line}\n" for line in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if main:
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\nvllm = {package}:main\n"
    record = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(text.encode())}\n")
    files[f"{info}/RECORD"] = "".join(record) + f"{info}/RECORD,,\n"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{package}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return target


def write_slow_source(folder: Path, gate: Path) -> Path:
    """A source package ``slowpart`` 1.0 whose build waits until the file ``gate`` exists and makes the
    file ``gate``.reached when it begins to."""
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": BACKEND.format(gate=str(gate)),
        "PKG-INFO": "Metadata-Version: 2.1\nName: slowpart\nVersion: 1.0\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "slowpart-1.0.tar.gz"
    with tarfile.open(target, "w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"slowpart-1.0/{path}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return target
