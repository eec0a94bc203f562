"""Secrets at rest: read when needed, and what still works once the data key is lost."""

from __future__ import annotations

import copy
import json

import pytest
from cryptography.fernet import Fernet
from django.db import connection, models
from django.test.utils import isolate_apps
from django.urls import reverse

from engines.actions.change_host import ChangeHost
from engines.actions.confirm_host_key import ConfirmHostKey
from engines.actions.contact_host import ContactHost
from engines.actions.start_engine import StartEngine
from engines.choices import HostAuth, HostKind, HostState
from engines.models import Engine, Host, Revision
from engines.ssh import keys
from engines.ssh.errors import HostMisconfigured
from engines.ssh.pool import login_for
from kvadmin.actions import Actor, Conflict, Invalid
from kvadmin.crypto import EncryptedTextField, Sealed, SecretUnreadable, has_secret, is_readable
from tests.support.factories import EngineFactory, EnvironmentFactory, HostFactory, RevisionFactory

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


def test_a_row_is_reloaded_without_its_secret(lost):
    for row, name in ((lost, "api_key"), (lost.host, "password"), (lost.revision, "secret_environment")):
        row.refresh_from_db()
        assert not is_readable(row, name)
    fresh = HostFactory(password="another")
    fresh.refresh_from_db()
    assert fresh.password == "another"


def test_contact_says_what_to_do(administrator, lost):
    contact = ContactHost(Actor(user=administrator), host=lost.host)
    assert contact.run().state == HostState.REFUSED
    assert "enter it again" in lost.host.state_text
    assert "enter it again" in contact.sentence


def test_a_host_key_is_confirmed_all_the_same(administrator, lost):
    offered = " ".join(keys.generate("host").public.split()[:2])
    Host.objects.filter(pk=lost.host_id).update(offered_key=offered, host_key="", state=HostState.CONFIRM)
    confirmed = ConfirmHostKey(
        Actor(user=administrator), host=lost.host, fingerprint=keys.fingerprint(offered)
    ).run()
    assert confirmed.host_key == offered


def test_a_start_is_refused_with_what_to_enter_again(administrator, lost):
    EnvironmentFactory(host=lost.host)
    lost.environment = lost.host.environments.get()
    lost.save(update_fields=["environment"])
    with pytest.raises(Conflict) as refused:
        StartEngine(Actor(user=administrator), lost).run()
    assert refused.value.code == "secret_unreadable"
    assert str(lost.revision) in refused.value.message


def test_a_model_that_holds_secrets_says_so():
    with isolate_apps("kvadmin"):

        class Careless(models.Model):
            secret = EncryptedTextField()

            class Meta:
                app_label = "kvadmin"

            def __str__(self) -> str:
                return ""

        assert [error.id for error in Careless.check()] == ["kvadmin.E002"]
