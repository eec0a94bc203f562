"""Fixtures for every test. Its first lines run before Django reads its settings."""

import os

import django

from tests.support import services

services.begin()
os.environ["DJANGO_SETTINGS_MODULE"] = "kvadmin.settings"
django.setup()

import hypothesis  # noqa: E402
import pytest  # noqa: E402
from django.conf import settings  # noqa: E402
from django.utils import translation  # noqa: E402

from kvadmin.catalogues import compile_catalogues  # noqa: E402

compile_catalogues()

# the same examples in every run, so that a change is judged by itself; others are looked for on purpose
hypothesis.settings.register_profile("suite", derandomize=True, database=None, print_blob=True)
if "KVADMIN_TEST_FUZZ" not in os.environ:
    hypothesis.settings.load_profile("suite")

# a real hash takes a third of a second for each of the people below
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

from tests.support.people import (  # noqa: E402
    administrator,
    operator,
    outsider,
    team,
    team_member,
    team_owner,
    viewer,
)
from tests.support.real_engine import real_engine, together  # noqa: E402
from tests.support.sshd import _shared_sshd, full_disk, ssh_users, sshd, start_sshd  # noqa: E402

__all__ = [
    "_shared_sshd",
    "administrator",
    "full_disk",
    "operator",
    "outsider",
    "real_engine",
    "ssh_users",
    "sshd",
    "start_sshd",
    "team",
    "team_member",
    "team_owner",
    "viewer",
]


@pytest.fixture(autouse=True)
def _no_language_stays():
    """A request leaves its reader's language behind in the thread: the next test begins without one."""
    yield
    translation.deactivate()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    together(items)


def pytest_unconfigure() -> None:
    services.finish()
