"""`manage.py prepare`: what comes before the processes start, safe to repeat."""

from __future__ import annotations

import io
import json

import pytest
from django.core.management import call_command

from kvadmin.actions.base import Actor, Conflict
from kvadmin.actions.create_first_administrator import CreateFirstAdministrator
from kvadmin.env import environment
from kvadmin.models import AuditEvent, User
from kvadmin.policies import Role


@pytest.fixture
def home(settings, tmp_path):
    settings.STATIC_ROOT = tmp_path / "static"
    return tmp_path


def prepare() -> dict:
    out = io.StringIO()
    call_command("prepare", stdout=out)
    return json.loads(out.getvalue().splitlines()[-1])


@pytest.mark.django_db
def test_it_makes_an_administrator_who_has_to_change_the_password(home):
    told = prepare()
    admin = User.objects.get()
    assert (admin.username, admin.role, admin.must_change_password) == ("admin", Role.ADMINISTRATOR, True)
    assert admin.check_password(told["password"])
    event = AuditEvent.objects.get(verb="user.create")
    assert (event.actor_name, event.source) == ("kvadmin", "command")
    assert told["password"] not in json.dumps([event.before, event.after])


@pytest.mark.django_db
def test_it_takes_the_password_that_was_chosen(home, monkeypatch):
    monkeypatch.setattr(environment(), "admin_password", "staple battery horse")
    told = prepare()
    admin = User.objects.get()
    assert "password" not in told
    assert admin.check_password("staple battery horse")
    assert not admin.must_change_password


@pytest.mark.django_db
def test_a_second_time_it_changes_nothing(home):
    first = prepare()
    told = prepare()
    assert told == {"administrator": "exists", "catalogues": 0, "collected": False}
    assert User.objects.get().check_password(first["password"])


@pytest.mark.django_db
def test_it_makes_no_administrator_where_there_are_people(home, viewer):
    assert prepare()["administrator"] == "exists"
    with pytest.raises(Conflict):
        CreateFirstAdministrator(Actor.system(), password="x" * 12, generated=True).run()
    assert User.objects.count() == 1


@pytest.mark.django_db
def test_static_files_are_there_and_compressed(home):
    assert prepare()["collected"] is True
    plotly = home / "static" / "vendor" / "plotly.min.js"
    assert plotly.exists()
    assert plotly.with_name("plotly.min.js.br").stat().st_size < plotly.stat().st_size / 3
    assert not list((home / "static").rglob("*.map"))
