"""tools/venv.sh: makes the environment, mends a half-made one, and says what it cannot mend."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvadmin.env import BASE_DIR

BASE_PYTHON = str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}")


class Checkout:
    def __init__(self, folder: Path):
        self.folder = folder
        shutil.copytree(BASE_DIR / "tools", folder / "tools")
        for name in ("requirements.txt", "requirements-dev.txt", "constraints.txt"):
            (folder / name).write_text("")

    def make(self, **environment: str) -> subprocess.CompletedProcess[str]:
        given = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
        return subprocess.run(
            ["sh", "tools/venv.sh", "requirements.txt"],
            cwd=self.folder,
            env={**given, "PYTHON": BASE_PYTHON, "PIP_NO_INDEX": "1", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def python(self) -> Path:
        return self.folder / ".venv" / "bin" / "python"

    @property
    def stamp(self) -> Path:
        return self.folder / ".venv" / ".kvadmin-requirements.txt"


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "a checkout with blanks"
    folder.mkdir()
    return Checkout(folder)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_makes_the_environment_once(checkout):
    (checkout.folder / "requirements.txt").write_text("kvadmin-none==1.0\n")
    made = checkout.make()
    # nothing to install from: the sentence, and no stamp that would call it complete
    assert made.returncode == 1
    assert "kvadmin cannot start: the packages could not be installed" in made.stderr
    assert not checkout.stamp.exists()

    (checkout.folder / "requirements.txt").write_text("# nothing\n")
    made = checkout.make()
    assert made.returncode == 0, made.stderr
    assert checkout.python.exists()
    assert "Making the virtual environment" not in made.stderr

    again = checkout.make()
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")

    # as after a kill in the middle of making it
    checkout.python.unlink()
    mended = checkout.make()
    assert mended.returncode == 0, mended.stderr
    assert "is incomplete: making it anew" in mended.stderr
    assert checkout.python.exists()


def test_a_link_that_has_the_packages_is_taken_as_it_is(checkout):
    (checkout.folder / ".venv").symlink_to(BASE_DIR / ".venv")
    for name in ("requirements.txt", "requirements-dev.txt"):
        shutil.copy(BASE_DIR / name, checkout.folder / name)
    assert checkout.make().returncode == 0


def test_a_link_without_the_packages_is_left_alone(checkout):
    (checkout.folder / ".venv").symlink_to(BASE_DIR / ".venv")
    (checkout.folder / "requirements.txt").write_text("kvadmin-none==1.0\n")
    refused = checkout.make()
    assert refused.returncode == 1
    assert ".venv is a link" in refused.stderr
    assert "kvadmin-none==1.0 (missing)" in refused.stderr
    assert (checkout.folder / ".venv").is_symlink()


def test_it_says_that_the_python_named_does_not_do(checkout):
    refused = checkout.make(PYTHON="/bin/true-python")
    assert "PYTHON=/bin/true-python is no Python 3.11 or newer" in refused.stderr
    assert refused.returncode == 1


def test_it_says_that_python_is_missing(checkout, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "cat", "sha256sum", "cut", "dirname", "flock"):
        (tools / name).symlink_to(shutil.which(name))
    refused = checkout.make(PYTHON="", PATH=str(tools))
    assert refused.returncode == 1
    assert "it needs Python 3.11 and here is no python3" in refused.stderr
    assert "apt-get install python3.11" in refused.stderr


def test_it_says_which_package_brings_virtual_environments(checkout, tmp_path):
    bare = tmp_path / "python-without-ensurepip"
    bare.write_text(f'#!/bin/sh\ncase "$2" in *ensurepip*) exit 1 ;; esac\nexec "{BASE_PYTHON}" "$@"\n')
    bare.chmod(0o755)
    refused = checkout.make(PYTHON=str(bare))
    assert refused.returncode == 1
    assert "apt-get install python3-venv" in refused.stderr
