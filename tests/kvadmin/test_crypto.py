"""Secrets at rest: read when needed, and what still works once the data key is lost."""

from __future__ import annotations

import copy
import json

import pytest
from cryptography.fernet import Fernet
from django.db import connection
from django.urls import reverse

from engines.actions.change_host import ChangeHost
from engines.choices import HostAuth, HostKind
from engines.models import Engine, Host, Revision
from engines.ssh.errors import HostMisconfigured
from engines.ssh.pool import login_for
from kvadmin.actions import Actor, Invalid
from kvadmin.crypto import Sealed, SecretUnreadable, has_secret, is_readable
from tests.support.factories import EngineFactory, HostFactory, RevisionFactory

pytestmark = pytest.mark.django_db


def stored(table: str, column: str, pk: int) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {column} FROM {table} WHERE id = %s", [pk])
        return cursor.fetchone()[0]


@pytest.fixture
def lost(settings):
    """Rows whose secrets were stored under a key that is no longer there."""
    host = HostFactory(kind=HostKind.SSH, auth=HostAuth.PASSWORD, password="old password")
    revision = RevisionFactory(secret_environment=json.dumps({"HF_TOKEN": "value of old"}))
    engine = EngineFactory(host=host, revision=revision, api_key="old engine key")
    settings.KVADMIN_DATA_KEYS = (Fernet.generate_key().decode(),)
    return Engine.objects.select_related("host", "revision").get(pk=engine.pk)


def test_a_secret_comes_back_and_is_not_stored_as_it_is():
    host = HostFactory(password="a password")
    assert Host.objects.get(pk=host.pk).password == "a password"
    assert copy.copy(Host.objects.get(pk=host.pk)).password == "a password"
    assert Host.objects.only("name").get(pk=host.pk).password == "a password"
    assert "a password" not in stored("engines_host", "password", host.pk)


def test_a_row_saved_without_a_look_keeps_its_secret(lost):
    before = stored("engines_host", "password", lost.host_id)
    lost.host.name = "renamed"
    lost.host.save()
    assert stored("engines_host", "password", lost.host_id) == before


def test_values_are_sealed():
    engine = EngineFactory(api_key="engine key")
    (value,) = Engine.objects.filter(pk=engine.pk).values_list("api_key", flat=True)
    assert isinstance(value, Sealed)
    assert "engine key" not in value


def test_rows_load_and_only_the_secret_itself_is_refused(lost):
    assert lost.host.name
    assert has_secret(lost.host, "password")
    assert not is_readable(lost.host, "password")
    for row, name in ((lost, "api_key"), (lost.host, "password"), (lost.revision, "secret_environment")):
        with pytest.raises(SecretUnreadable):
            getattr(row, name)


def test_pages_work_and_say_that_it_has_to_be_entered_again(client, administrator, lost):
    client.force_login(administrator)
    sentence = "The stored secret cannot be read: enter it again."
    for name, args, says in [
        ("fleet", [], False),
        ("host_list", [], False),
        ("engine_list", [], False),
        ("profile_list", [], False),
        ("engine_detail", [lost.pk], False),
        ("host_detail", [lost.host_id], True),
        ("host_edit", [lost.host_id], True),
        ("profile_detail", [lost.revision.profile_id], True),
        ("profile_edit", [lost.revision.profile_id], False),
    ]:
        page = client.get(reverse(f"engines:{name}", args=args))
        assert page.status_code == 200, name
        assert not says or sentence in page.content.decode(), name


def test_the_host_s_secret_can_be_entered_again(administrator, lost):
    actor = Actor(user=administrator)
    with pytest.raises(Invalid) as refused:
        ChangeHost(actor, host=lost.host, name="other").run()
    assert refused.value.errors == {"password": ["The stored secret cannot be read: enter it again."]}
    with pytest.raises(HostMisconfigured):
        login_for(lost.host)
    host = Host.objects.get(pk=lost.host_id)
    ChangeHost(actor, host=host, password="new password").run()
    assert Host.objects.get(pk=lost.host_id).password == "new password"


def test_a_profile_s_other_values_are_shown_without_its_secrets(lost):
    revision = Revision.objects.get(pk=lost.revision_id)
    assert revision.shown_spec.model == revision.model
    assert revision.shown_spec.secrets == {}
    with pytest.raises(SecretUnreadable):
        _ = revision.spec
