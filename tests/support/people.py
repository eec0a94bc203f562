"""The people of every permission test: one for each role. ``outsider`` is signed in and has no role
on engines (a member of teams only)."""

from __future__ import annotations

import pytest

from kvadmin.models import User
from kvadmin.policies import Role


def make_person(username: str, role: Role) -> User:
    return User.objects.create_user(username, password="correct horse battery", role=role)


@pytest.fixture
def administrator(db):
    return make_person("ada", Role.ADMINISTRATOR)


@pytest.fixture
def operator(db):
    return make_person("olga", Role.OPERATOR)


@pytest.fixture
def viewer(db):
    return make_person("vera", Role.VIEWER)


@pytest.fixture
def outsider(db):
    return make_person("otto", Role.MEMBER)
