"""Saving a profile makes numbered revisions, loses no secret and overwrites nobody's work."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from django.db import connection

from engines.actions.archive_profile import ArchiveProfile
from engines.actions.restore_profile import RestoreProfile
from engines.actions.save_profile import SaveProfile
from engines.models import Profile, Revision
from kvadmin.actions import Actor, Conflict, Denied, Invalid
from kvadmin.models import AuditEvent
from tests.support.factories import EngineFactory, ProfileFactory, RevisionFactory

pytestmark = pytest.mark.django_db


def save(user: Any, **changes: Any) -> SaveProfile:
    """Run the action; given back so that what it found can be looked at."""
    given = {"name": "qwen3-8b-v1", "model": "Qwen/Qwen3-8B", "served_names": ["qwen3-8b-v1"], **changes}
    action = SaveProfile(Actor(user=user, source="web"), **given)
    action.run()
    return action


def test_it_creates_a_profile_with_revision_1(operator):
    save(operator, values={"max_model_len": "32K", "gpu_memory_utilization": "0.90"}, note="first")
    revision = Profile.objects.get(name="qwen3-8b-v1").latest
    assert revision.number == 1
    assert revision.values == {"max_model_len": 32768, "gpu_memory_utilization": 0.9}
    assert (revision.note, revision.created_by) == ("first", operator)
    assert revision.spec.served_name == "qwen3-8b-v1"


def test_it_makes_the_next_revision_and_leaves_the_last_one(operator):
    profile = ProfileFactory()
    first = RevisionFactory(profile=profile, values={"max_model_len": 8192})
    action = save(operator, profile=profile, name=profile.name, values={"max_model_len": 16384}, based_on=1)
    assert action.revision_made
    assert profile.latest.number == 2
    assert profile.latest.values == {"max_model_len": 16384}
    first.refresh_from_db()
    assert first.values == {"max_model_len": 8192}


def test_saving_without_a_change_makes_no_revision_and_no_audit_row(operator):
    save(operator, values={"seed": 1}, secrets={"HF_TOKEN": "abc"})
    profile = Profile.objects.get()
    rows = AuditEvent.objects.count()
    again = save(
        operator, profile=profile, values={"seed": "1"}, secrets={"HF_TOKEN": None}, based_on=1, note="again"
    )
    assert not again.revision_made
    assert profile.revisions.count() == 1
    assert AuditEvent.objects.count() == rows


def test_a_new_description_alone_makes_no_revision(operator):
    profile = RevisionFactory(profile__name="qwen3-8b-v1", served_names=["qwen3-8b-v1"], values={}).profile
    action = save(operator, profile=profile, description="for the shop")
    assert not action.revision_made
    profile.refresh_from_db()
    assert profile.description == "for the shop"
    event = AuditEvent.objects.get(verb="profile.save")
    assert (event.before, event.after) == ({"description": ""}, {"description": "for the shop"})


def test_a_secret_left_blank_is_kept_and_one_left_out_is_gone(operator):
    save(operator, secrets={"HF_TOKEN": "abc", "OTHER_TOKEN": "def"})
    profile = Profile.objects.get()
    save(operator, profile=profile, secrets={"HF_TOKEN": None}, based_on=1)
    assert profile.latest.secrets == {"HF_TOKEN": "abc"}
    save(operator, profile=profile, secrets={"HF_TOKEN": "new"}, based_on=2)
    assert profile.latest.secrets == {"HF_TOKEN": "new"}


def test_a_secret_without_a_value_is_asked_for(operator):
    with pytest.raises(Invalid) as refused:
        save(operator, secrets={"HF_TOKEN": None})
    assert refused.value.errors == {"environment": ["HF_TOKEN has no stored value. Enter its value."]}


def test_a_copy_takes_the_secrets_of_its_source(operator):
    save(operator, secrets={"HF_TOKEN": "abc"})
    source = Profile.objects.get().latest
    save(operator, name="copy", secrets={"HF_TOKEN": None}, secrets_from=source)
    assert Profile.objects.get(name="copy").latest.secrets == {"HF_TOKEN": "abc"}


def test_secrets_are_encrypted_and_never_audited(operator):
    save(operator, secrets={"HF_TOKEN": "abc-secret"})
    save(operator, profile=Profile.objects.get(), secrets={"HF_TOKEN": "new-secret"}, based_on=1)
    with connection.cursor() as cursor:
        cursor.execute("select secret_environment from engines_revision")
        stored = str(cursor.fetchall())
    audited = str(list(AuditEvent.objects.values()))
    for text in (stored, audited):
        assert "abc-secret" not in text
        assert "new-secret" not in text
    assert AuditEvent.objects.last().after["secret_names"] == ["HF_TOKEN"]
    assert "hidden" not in repr(SaveProfile(Actor(), name="x", model="m", secrets={"A": "hidden"}))


def test_the_audit_row_says_what_changed(operator):
    profile = RevisionFactory(profile__name="qwen3-8b-v1", served_names=["qwen3-8b-v1"], values={}).profile
    save(operator, profile=profile, values={"seed": 1}, based_on=1)
    event = AuditEvent.objects.get(verb="profile.save")
    assert event.before == {"values": {}, "revision": 1}
    assert event.after == {"values": {"seed": 1}, "revision": 2}
    assert (event.actor_name, event.subject_name) == ("olga", "qwen3-8b-v1")


def test_a_save_on_an_older_revision_is_a_conflict(operator):
    profile = ProfileFactory(name="qwen3-8b-v1")
    RevisionFactory(profile=profile)
    RevisionFactory(profile=profile, values={"seed": 2})
    with pytest.raises(Conflict) as refused:
        save(operator, profile=profile, values={"seed": 3}, based_on=1)
    assert refused.value.code == "revision_conflict"
    assert profile.revisions.count() == 2


def test_a_kept_secret_outlasts_its_removal_by_somebody_else(operator):
    profile = ProfileFactory(name="qwen3-8b-v1")
    RevisionFactory(profile=profile, secret_environment=json.dumps({"HF_TOKEN": "old", "B": "old"}))
    RevisionFactory(profile=profile, secret_environment=json.dumps({"B": "new"}))
    kept = {"values": {"seed": 3}, "secrets": {"HF_TOKEN": None, "B": None}}
    with pytest.raises(Conflict) as refused:
        save(operator, profile=profile, based_on=1, **kept)
    assert refused.value.code == "revision_conflict"
    save(operator, profile=profile, based_on=2, shown=1, **kept)
    assert profile.latest.secrets == {"HF_TOKEN": "old", "B": "new"}


@pytest.mark.django_db(transaction=True)
def test_of_two_saves_at_once_one_is_a_conflict(operator):
    profile = ProfileFactory(name="qwen3-8b-v1")
    RevisionFactory(profile=profile)
    outcomes: list[str] = []
    ready = threading.Barrier(2)

    def one(seed: int) -> None:
        try:
            ready.wait(10)
            save(operator, profile=profile, values={"seed": seed}, based_on=1)
            outcomes.append("saved")
        except Conflict as refused:
            outcomes.append(refused.code)
        finally:
            connection.close()

    threads = [threading.Thread(target=one, args=(seed,)) for seed in (5, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(outcomes) == ["revision_conflict", "saved"]
    assert profile.revisions.count() == 2


def test_every_mistake_is_named_at_once(operator):
    with pytest.raises(Invalid) as refused:
        save(operator, name=" ", model="", values={"max_num_seqs": "x"}, extra_arguments="--port 1")
    assert set(refused.value.errors) == {"name", "model", "max_num_seqs", "extra_arguments"}
    assert Profile.objects.count() == 0


@pytest.mark.parametrize("name", ["qwen3-8b-v1", "QWEN3-8B-V1", " qwen3-8b-v1 "])
def test_a_name_is_taken_once(operator, name):
    save(operator)
    with pytest.raises(Invalid) as refused:
        save(operator, name=name)
    assert "name" in refused.value.errors


def test_what_is_too_long_is_a_sentence(operator):
    with pytest.raises(Invalid) as refused:
        save(operator, name="n" * 101, model="m" * 501, note="x" * 301, gpus="0," * 60)
    assert {"name", "model", "note", "gpus"} <= set(refused.value.errors)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "a\0b", "description": "x\ud800", "note": "\0"},
        {"model": "a\0b"},
        {"served_names": ["a\ud800"]},
        {"gpus": "\0"},
        {"environment": {"A": "\0"}},
        {"environment": {"A\0": "x"}},
        {"secrets": {"A": "\ud800"}},
        {"extra_arguments": "--a \0"},
        {"extra_arguments": "--a '\ud800'"},
        {"values": {"chat_template": "\0"}},
        {"values": {"hf_overrides": '{"a": "\\u0000"}'}},
        {"values": {"hf_overrides": {"a\ud800": float("nan")}}},
        {"values": {"seed": "9" * 5000}},
        {"values": {"seed": 10**40}},
        {"values": {"\0": 1}},
    ],
)
def test_what_cannot_be_stored_is_taken_out_or_refused(operator, changes):
    try:
        save(operator, **changes)
    except Invalid as refused:
        assert refused.errors
    else:
        assert Profile.objects.get().name == "ab"


@pytest.mark.parametrize("person", ["viewer", "outsider"])
def test_others_may_not(request, person):
    user = request.getfixturevalue(person)
    profile = RevisionFactory().profile
    for action in (
        SaveProfile(Actor(user=user), name="x", model="m"),
        SaveProfile(Actor(user=user), name="x", model="m", profile=profile),
        ArchiveProfile(Actor(user=user), profile),
        RestoreProfile(Actor(user=user), profile),
    ):
        with pytest.raises(Denied):
            action.run()
    assert Revision.objects.count() == 1


def test_archiving_hides_and_can_be_undone(operator):
    profile = RevisionFactory().profile
    ArchiveProfile(Actor(user=operator), profile).run()
    profile.refresh_from_db()
    assert profile.archived_at is not None
    with pytest.raises(Conflict) as refused:
        ArchiveProfile(Actor(user=operator), profile).run()
    assert refused.value.code == "profile_archived"
    with pytest.raises(Conflict) as refused:
        save(operator, name=profile.name, profile=profile, based_on=1)
    assert refused.value.code == "profile_archived"
    RestoreProfile(Actor(user=operator), profile).run()
    profile.refresh_from_db()
    assert profile.archived_at is None
    with pytest.raises(Conflict):
        RestoreProfile(Actor(user=operator), profile).run()
    assert set(AuditEvent.objects.values_list("verb", flat=True)) == {"profile.archive", "profile.restore"}


def test_archiving_is_refused_while_engines_use_it_and_names_them(operator):
    revision = RevisionFactory()
    EngineFactory(revision=revision, name="alpha")
    EngineFactory(revision=RevisionFactory(profile=revision.profile), name="beta")
    with pytest.raises(Conflict) as refused:
        ArchiveProfile(Actor(user=operator), revision.profile).run()
    assert refused.value.code == "profile_in_use"
    assert "alpha, beta" in refused.value.message
