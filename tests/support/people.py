"""The people of every permission test: one for each role. ``outsider`` is signed in and has no role
on engines (a member of teams only)."""

from __future__ import annotations

import pytest

from kvadmin.models import Team, User
from kvadmin.policies import Role, TeamRole


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


@pytest.fixture
def team(db):
    """A team that ``team_owner`` owns and ``team_member`` belongs to; nobody else."""
    return Team.objects.create(name="search")


@pytest.fixture
def team_owner(team):
    user = make_person("oona", Role.MEMBER)
    team.memberships.create(user=user, role=TeamRole.OWNER)
    return user


@pytest.fixture
def team_member(team):
    user = make_person("mika", Role.MEMBER)
    team.memberships.create(user=user, role=TeamRole.MEMBER)
    return user
