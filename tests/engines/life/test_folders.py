"""The folders of starts on a host: pruned at a start, removed with their engine if that is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.urls import reverse
from django.utils import timezone

from engines.actions.remove_engine import RemoveEngine
from engines.launch.folders import folders_of, prune
from engines.models import Engine, EngineStart
from engines.ssh.errors import HostUnreachable
from engines.tasks import hosts
from kvadmin.actions import Actor, Invalid
from kvadmin.models import AuditEvent


def made(place, engine: Engine, count: int, **values: object) -> list[EngineStart]:
    """Starts that have ended, with their folders."""
    starts = []
    for number in range(1, count + 1):
        start = EngineStart(engine=engine, number=number, **{"ended_at": timezone.now(), **values})
        start.directory = f"{place.host.work_dir}/engines/{engine.pk}/{start.marker}"
        start.log_path = f"{start.directory}/log"
        Path(start.directory).mkdir(parents=True)
        Path(start.log_path).write_text("a line\n")
        start.save()
        starts.append(start)
    return starts


def there(starts: list[EngineStart]) -> list[int]:
    return [start.number for start in starts if Path(start.directory).is_dir()]


def test_a_start_leaves_the_newest_folders(place, settings):
    settings.KVADMIN_KEEP_STARTS = 3
    engine = place.engine()
    old = made(place, engine, 5)
    assert place.start(engine).state == "succeeded"
    assert there(old) == [4, 5]
    assert Path(engine.current_start.log_path).exists()
    assert [start.number for start in engine.starts.exclude(log_path="")] == [6, 5, 4]
    lines = engine.operations.get().lines.values_list("text", flat=True)
    assert "Removed the folders of 3 earlier starts from the host." in lines


def test_nothing_goes_of_a_start_that_has_not_ended_or_is_the_present_one(place, settings):
    settings.KVADMIN_KEEP_STARTS = 2
    engine = place.engine()
    starts = made(place, engine, 5)
    EngineStart.objects.filter(pk=starts[0].pk).update(ended_at=None)
    Engine.objects.filter(pk=engine.pk).update(current_start=starts[1])
    engine.refresh_from_db()
    assert prune(place.session, engine) == (1, "")
    assert there(starts) == [1, 2, 4, 5]
    assert prune(place.session, engine) == (0, "")


def test_only_folders_that_are_a_start_s_own_are_named(place):
    engine = place.engine()
    (start,) = made(place, engine, 1)
    assert folders_of([start]) == [start.directory]
    for wrong in ("/", f"/srv/engines/{engine.pk}/", f"/srv/engines/{engine.pk + 1}/{start.marker}"):
        start.directory = wrong
        assert folders_of([start]) == []


@pytest.fixture
def after_commit(monkeypatch, django_capture_on_commit_callbacks, place):
    """Runs an action, and what it left to the worker, at once."""
    monkeypatch.setattr(hosts, "session_for", place.connect)

    def run(action):
        with django_capture_on_commit_callbacks() as left:
            action.run()
        for callback in left:
            callback()

    monkeypatch.setattr(hosts.remove_start_folders, "delay", hosts.remove_start_folders)
    return run


def test_files_go_with_the_engine_only_if_asked(place, after_commit, operator):
    kept, gone = place.engine(), place.engine()
    of_kept, of_gone = made(place, kept, 1), made(place, gone, 2)
    folder = Path(of_gone[0].directory).parent
    after_commit(RemoveEngine(Actor(user=operator), kept))
    after_commit(RemoveEngine(Actor(user=operator), gone, remove_files=True))
    assert there(of_kept) == [1]
    assert not folder.exists()
    assert [event.after or event.before["files"] for event in AuditEvent.objects.order_by("id")] == [
        "kept",
        "removed",
    ]


def test_a_host_out_of_reach_does_not_hinder_the_removal(place, monkeypatch, operator):
    engine = place.engine()
    made(place, engine, 1)
    RemoveEngine(Actor(user=operator), engine, remove_files=True).run()
    assert not Engine.objects.exists()

    def unreachable(host):
        raise HostUnreachable("It does not answer.")

    monkeypatch.setattr(hosts, "session_for", unreachable)
    with pytest.raises(HostUnreachable):
        hosts.remove_start_folders.run(place.host.pk, ["/x/engines/1/m"])


def test_what_is_forgotten_keeps_its_files(place, operator):
    engine = place.engine()
    made(place, engine, 1, ended_at=None)
    with pytest.raises(Invalid) as refused:
        RemoveEngine(Actor(user=operator), engine, forget=True, remove_files=True).run()
    assert refused.value.field == "remove_files"


def test_the_page_offers_both_where_they_mean_something(place, client, operator):
    client.force_login(operator)
    engine = place.engine()
    page = reverse("engines:engine_edit", args=[engine.pk])
    remove = reverse("engines:engine_remove", args=[engine.pk])
    html = client.get(page).content.decode()
    assert 'name="remove_files"' not in html
    assert 'name="forget"' not in html
    made(place, engine, 1, ended_at=None)
    Engine.objects.filter(pk=engine.pk).update(observed="unreachable")
    html = client.get(page).content.decode()
    assert 'name="remove_files"' in html
    assert 'name="forget"' in html
    client.post(remove)
    assert Engine.objects.exists()
    client.post(remove, {"forget": "on"})
    assert not Engine.objects.exists()
    assert AuditEvent.objects.get(verb="engine.remove").before["forgotten"] is True
