"""What keeps `manage.py up` from starting is a sentence that says what to do, and no traceback."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

import pytest

from kvadmin.env import BASE_DIR
from kvadmin.up import postgres, preflight
from kvadmin.up.folders import private_folder
from kvadmin.up.places import SOCKET_PATH_BYTES, PostgresPlace, postgres_place, valkey_socket
from kvadmin.up.problems import CannotRun
from tests.support.up import running


def refused(tmp_path, **environment) -> str:
    with running(tmp_path / "home", **environment) as up:
        said = up.refused()
    assert "Traceback" not in said
    assert said.startswith("kvadmin cannot start")
    return said


def test_it_tells_all_wrong_settings(tmp_path):
    said = refused(tmp_path, KVADMIN_PORT="x", KVADMIN_BNID="0.0.0.0")
    assert "KVADMIN_PORT: 'x' is not a whole number." in said
    assert "Did you mean KVADMIN_BIND?" in said


def test_it_says_that_home_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    said = refused(tmp_path, KVADMIN_HOME=str(tmp_path / "file"))
    assert f"cannot write to {tmp_path}/file" in said


def test_it_says_that_home_cannot_be_written(tmp_path):
    said = refused(tmp_path, KVADMIN_HOME="/proc/kvadmin")
    assert "cannot write to /proc/kvadmin" in said
    assert "set KVADMIN_HOME to a folder it may write to" in said


def test_it_says_that_an_address_is_not_of_this_machine(tmp_path):
    assert "192.0.2.7 is no address of this machine. Set KVADMIN_BIND" in refused(
        tmp_path, KVADMIN_BIND="192.0.2.7"
    )


def test_it_says_that_the_disk_is_full(tmp_path):
    with pytest.raises(CannotRun, match=r"Only \d+ MB are free on the disk .* Free some space"):
        preflight.enough_disk(tmp_path, needed=1 << 60)


def test_it_notices_a_disk_without_any_room(monkeypatch, tmp_path):
    def no_room(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", no_room)
    with pytest.raises(CannotRun, match=r"is full\. Free some space"):
        preflight.writable_home(tmp_path)


def test_it_says_that_python_is_too_old():
    older = (
        "import runpy, sys; sys.version_info = (3, 9, 2, 'final', 0); sys.version = '3.9.2 (main)'\n"
        f"path = {str(BASE_DIR / 'manage.py')!r}; sys.argv = [path, 'up']\n"
        "runpy.run_path(path, run_name='__main__')"
    )
    made = subprocess.run([sys.executable, "-c", older], capture_output=True, text=True, check=False)
    assert made.returncode == 1
    assert "kvadmin needs Python 3.11 or newer and this is 3.9.2" in made.stderr


def test_an_older_python_can_read_as_far_as_that_sentence():
    ast.parse((BASE_DIR / "manage.py").read_text(), feature_version=(3, 6))


def test_it_says_that_packages_are_missing():
    bare = [sys.executable, "-S", str(BASE_DIR / "manage.py"), "up"]
    made = subprocess.run(bare, capture_output=True, text=True, check=False)
    assert made.returncode == 1
    assert "kvadmin's packages are not complete here" in made.stderr
    assert "make run" in made.stderr


def test_sockets_of_a_long_home_go_where_their_path_fits(tmp_path, monkeypatch):
    home = tmp_path / ("x" * 120)
    assert len(os.fsencode(valkey_socket(home))) <= SOCKET_PATH_BYTES
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    place = postgres_place(home)
    assert len(os.fsencode(place.sockets / ".s.PGSQL.5432")) <= SOCKET_PATH_BYTES
    assert place.data.is_relative_to(home)


def test_a_folder_that_others_can_enter_is_refused_and_left_as_it_is(tmp_path):
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(CannotRun, match="closed to everybody else"):
        private_folder(tmp_path / "open")
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o755


def test_a_link_in_place_of_a_private_folder_is_refused(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(CannotRun):
        private_folder(tmp_path / "link")


def test_data_of_another_postgresql_is_left_alone(tmp_path):
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "PG_VERSION").write_text("15\n")
    with pytest.raises(CannotRun, match="written by PostgreSQL 15 and this is PostgreSQL 18"):
        postgres.prepare(PostgresPlace(tmp_path, data, tmp_path / "run", None))
