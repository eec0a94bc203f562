"""The scheduled looks at hosts."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from engines.actions.contact_host import ContactHost
from engines.choices import HostKind, HostState
from engines.host_states import note_host_error, note_host_online
from engines.models import GpuSample, Host, Operation
from engines.ssh import errors, keys
from engines.ssh.pool import login_for
from engines.ssh.transport import connect
from engines.tasks import hosts as tasks
from kvadmin.actions import Actor
from tests.support.factories import HostFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def this_machine():
    return HostFactory(kind=HostKind.LOCAL, address="", auth="none", host_key="", state=HostState.UNREACHABLE)


def test_a_sample_keeps_the_figures_and_says_the_host_is_there(this_machine, nvidia_smi):
    nvidia_smi("four_a100")
    uuid = "GPU-5f1c9d3e-1b7a-4a53-9d0e-000000000000"
    this_machine.facts = {"gpus": [{"uuid": uuid, "memory_used_mib": 1, "processes": [{"pid": 9}]}], "x": 1}
    this_machine.save()
    tasks.sample_host(this_machine.pk)
    this_machine.refresh_from_db()
    assert this_machine.state == HostState.ONLINE
    assert len(this_machine.boot_id) == 36
    assert GpuSample.objects.filter(host=this_machine).count() == 4
    assert this_machine.facts["gpus"][0]["memory_used_mib"] == 74213
    assert this_machine.facts["gpus"][0]["processes"] == [{"pid": 9}]
    assert this_machine.facts["x"] == 1


def test_a_sample_without_a_gpu_is_no_row(this_machine, nvidia_smi):
    nvidia_smi("no_devices")
    tasks.sample_host(this_machine.pk)
    this_machine.refresh_from_db()
    assert this_machine.state == HostState.ONLINE
    assert not GpuSample.objects.exists()


def test_a_host_that_is_gone_becomes_unreachable_and_comes_back(sshd):
    host = sshd.host(state=HostState.ONLINE)
    sshd.stop()
    tasks.sample_host(host.pk)
    host.refresh_from_db()
    assert host.state == HostState.UNREACHABLE
    sshd.start()
    tasks.sample_host(host.pk)
    host.refresh_from_db()
    assert (host.state, host.state_text) == (HostState.ONLINE, "")


def test_only_hosts_that_are_or_were_reachable_are_sampled(monkeypatch):
    asked = []
    monkeypatch.setattr(tasks.sample_host, "apply_async", lambda args, **_options: asked.append(args[0]))
    rows = {state: HostFactory(state=state) for state in HostState}
    tasks.sample_hosts()
    assert set(asked) == {rows[HostState.ONLINE].pk, rows[HostState.UNREACHABLE].pk}


def test_online_and_refused_hosts_are_probed_once(this_machine):
    note_host_online(this_machine)
    refused = HostFactory(state=HostState.REFUSED)
    for state in (HostState.BLOCKED, HostState.CONFIRM, HostState.UNREACHABLE):
        HostFactory(state=state)
    tasks.probe_hosts()
    tasks.probe_hosts()
    assert {operation.host for operation in Operation.objects.all()} == {this_machine, refused}
    assert Operation.objects.count() == 2


def test_old_samples_are_trimmed(this_machine, monkeypatch):
    monkeypatch.setattr(tasks, "_TRIM_AT_ONCE", 3)
    now = timezone.now()
    for days in (0, 29, *[31] * 7):
        GpuSample.objects.create(host=this_machine, index=0, uuid="x", taken_at=now - timedelta(days=days))
    tasks.trim_gpu_samples()
    assert GpuSample.objects.count() == 2


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (errors.HostUnreachable("gone", remedy="Look."), HostState.UNREACHABLE),
        (errors.SignInRefused("no"), HostState.REFUSED),
        (errors.HostKeyUnusable("bad key"), HostState.REFUSED),
        (errors.HostShellUnusable("no shell"), HostState.REFUSED),
        (errors.HostMisconfigured("a circle"), HostState.REFUSED),
        (errors.HostKeyUnknown("new", offered="ssh-ed25519 BBBB"), HostState.CONFIRM),
        (
            errors.HostKeyChanged("other", pinned="ssh-ed25519 AAAA", offered="ssh-ed25519 BBBB"),
            HostState.BLOCKED,
        ),
        (errors.CommandTimeout("slow"), HostState.ONLINE),
        (errors.HostDiskFull("full"), HostState.ONLINE),
    ],
)
def test_an_error_becomes_a_state(error, state):
    host = HostFactory(state=HostState.ONLINE)
    note_host_error(host, error)
    host.refresh_from_db()
    assert host.state == state
    said = "" if state in {HostState.ONLINE, HostState.CONFIRM} else f"{error.message} {error.remedy}".strip()
    assert host.state_text == said
    assert host.offered_key == ("ssh-ed25519 BBBB" if state in {HostState.CONFIRM, HostState.BLOCKED} else "")


def test_a_key_confirmed_meanwhile_wins():
    host = HostFactory(state=HostState.ONLINE)
    Host.objects.filter(pk=host.pk).update(host_key="ssh-ed25519 CCCC", state=HostState.NEW)
    error = errors.HostKeyChanged("other", pinned="ssh-ed25519 AAAA", offered="ssh-ed25519 CCCC")
    assert note_host_error(host, error) is None
    host.refresh_from_db()
    assert (host.state, host.offered_key) == (HostState.NEW, "")


def test_a_jump_hosts_changed_key_blocks_the_jump_host_and_is_not_offered_for_the_inner_one(sshd):
    outer = sshd.host(name="outer")
    inner = HostFactory(name="inner", jump=outer, private_key=keys.generate().private)
    sshd.swap_host_key()
    with pytest.raises(errors.HostKeyChanged) as caught:
        connect(login_for(inner))
    note_host_error(inner, caught.value)
    outer.refresh_from_db()
    inner.refresh_from_db()
    assert (outer.state, outer.offered_key) == (HostState.BLOCKED, sshd.host_key)
    assert (inner.state, inner.offered_key) == (HostState.UNREACHABLE, "")
    assert "outer" in inner.state_text


def test_testing_a_connection_through_a_changed_jump_host_does_not_offer_that_key_for_the_inner_host(sshd):
    outer = sshd.host(name="outer")
    inner = HostFactory(name="inner", host_key="", jump=outer, state=HostState.NEW)
    sshd.swap_host_key()
    ContactHost(Actor.system(), host=inner).run()
    outer.refresh_from_db()
    inner.refresh_from_db()
    assert (outer.state, outer.offered_key) == (HostState.BLOCKED, sshd.host_key)
    assert (inner.state, inner.offered_key) == (HostState.UNREACHABLE, "")


def test_testing_a_new_host_takes_down_its_key(sshd):
    host = sshd.host(host_key="", state=HostState.NEW)
    action = ContactHost(Actor.system(), host=host)
    action.run()
    assert (host.state, host.offered_key, action.connected) == (HostState.CONFIRM, sshd.host_key, False)
    host.host_key, host.offered_key = host.offered_key, ""
    host.save()
    ContactHost(Actor.system(), host=host).run()
    assert host.state == HostState.ONLINE
