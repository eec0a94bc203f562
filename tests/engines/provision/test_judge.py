from dataclasses import replace

import pytest

from engines.provision.facts import HostCheck, PythonFound, choose_python, numbers, parse_check
from engines.provision.judge import judge
from engines.provision.versions import KNOWN_VERSIONS, RELEASES, driver_floor, driver_recommended, release_for

PYTHON = PythonFound(path="/usr/bin/python3.12", version="3.12.3", how="venv")
GOOD = HostCheck(
    work="/home/ops/.kvadmin",
    arch="x86_64",
    glibc="2.39",
    writable=True,
    free_bytes=100 * 2**30,
    drivers=["580.65.06"],
    pythons=[PYTHON],
)


def codes(found, **changes):
    request = {"version": "0.33.0", "variant": "cuda", "source": "index", **changes}
    problems, _python = judge(found, **request)
    return [(problem.code, problem.blocks) for problem in problems]


def test_a_good_host_has_no_problem():
    problems, python = judge(GOOD, version="0.33.0", variant="cuda", source="index")
    assert problems == []
    assert python == PYTHON


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"writable": False}, "not_writable"),
        ({"environment": "foreign"}, "environment_foreign"),
        ({"glibc": "2.27"}, "glibc_old"),
        ({"glibc": ""}, "no_glibc"),
        ({"free_bytes": 11 * 2**30}, "disk_small"),
        ({"pythons": []}, "no_python"),
        ({"pythons": [replace(PYTHON, version="3.9.18")]}, "no_python"),
        ({"pythons": [replace(PYTHON, how="none")]}, "no_venv"),
        ({"drivers": []}, "no_gpu"),
        ({"drivers": [], "gpu_error": "Driver/library version mismatch"}, "gpu_error"),
        ({"drivers": ["570.133.20"]}, "driver_old"),
    ],
)
def test_what_is_in_the_way(changes, code):
    assert codes(replace(GOOD, **changes)) == [(code, True)]


def test_cuda_12_runs_on_an_old_driver_with_a_word_of_warning():
    found = replace(GOOD, drivers=["535.104.05"])
    assert codes(found, version="0.10.2") == [("driver_older", False)]
    assert codes(replace(GOOD, drivers=["520.61.05"]), version="0.10.2") == [("driver_old", True)]


def test_an_old_driver_can_be_overridden():
    assert codes(replace(GOOD, drivers=["535.104.05"]), despite_driver=True) == [("driver_old", False)]


def test_the_cpu_build_needs_no_gpu_and_less_disk():
    assert codes(replace(GOOD, drivers=[], free_bytes=5 * 2**30), variant="cpu", version="0.32.0") == []


@pytest.mark.parametrize(
    ("wheels", "code"),
    [("missing", "wheels_missing"), ("unreadable", "wheels_unreadable"), ("0", "wheels_empty")],
)
def test_the_wheel_folder_has_to_hold_wheels(wheels, code):
    assert codes(replace(GOOD, wheels=wheels), source="wheels") == [(code, True)]
    assert codes(replace(GOOD, wheels="12"), source="wheels") == []


def test_glibc_follows_the_release():
    assert codes(replace(GOOD, glibc="2.31"), version="0.20.2") == [("glibc_old", True)]
    assert codes(replace(GOOD, glibc="2.31"), version="0.25.1") == []


def test_a_version_older_than_the_table_is_refused():
    assert codes(GOOD, version="0.4.0") == [("too_old", True)]


def test_a_newer_version_than_the_table_is_judged_as_the_newest():
    assert release_for("0.99.0") == RELEASES[-1]
    assert release_for("0.6.6.post1").torch == "2.5.1"


def test_every_release_of_the_table_has_its_drivers():
    for release in RELEASES:
        assert driver_floor(release.cuda) <= driver_recommended(release.cuda)
    assert [numbers(version) for version in KNOWN_VERSIONS] == sorted(
        (numbers(version) for version in KNOWN_VERSIONS), reverse=True
    )


def test_the_first_python_that_fits_and_can_make_environments_is_taken():
    pythons = [
        PythonFound("/usr/bin/python3", "3.9.2", "venv"),
        PythonFound("/usr/bin/python3.11", "3.11.2", "none"),
        PythonFound("/opt/python/bin/python3", "3.12.1", "virtualenv"),
    ]
    found = replace(GOOD, pythons=pythons)
    assert choose_python(found, (3, 10), (3, 15)).path == "/opt/python/bin/python3"
    assert choose_python(replace(found, pythons=pythons[:2]), (3, 10), (3, 15)) is None
    assert choose_python(replace(found, pythons=pythons[:2], uv="/bin/uv"), (3, 10), (3, 15)).how == "none"


def test_the_checks_answer_is_read():
    found = parse_check(
        "work /home/ops/.kvadmin\nglibc 2.39\nwritable yes\nfree_kib 1048576\nenvironment begun\n"
        "begun_by 7f0e\ndriver 580.65.06\ndriver 580.65.06\npython 3.12.3 venv /usr/bin/python3.12\n"
        "python 3.12.3 venv /usr/bin/python3.12\npython garbage\nsomething else\nuv /home/ops/.local/bin/uv\n"
    )
    assert found.free_bytes == 2**30
    assert found.drivers == ["580.65.06"]
    assert found.pythons == [PYTHON]
    assert (found.environment, found.begun_by, found.uv) == ("begun", "7f0e", "/home/ops/.local/bin/uv")
