"""Another address for a host on which engines may run: taken if it is the same machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.actions.change_host import ChangeHost
from engines.models import EngineStart, Host
from kvadmin.actions import Actor, Conflict
from kvadmin.models import AuditEvent
from tests.support.factories import EngineFactory
from tests.support.sshd import free_port

pytestmark = pytest.mark.django_db

BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
OTHER_BOOT = "ffffffff-0000-0000-0000-000000000000"


@pytest.fixture
def olga(operator):
    return Actor(user=operator, source="web", ip="10.1.1.1")


@pytest.fixture
def host(sshd):
    """A host known under an address that nothing answers at any more."""
    host = sshd.host()
    host.address, host.port = "127.0.0.1", free_port()
    host.save()
    return host


def running(host: Host, **values: object) -> EngineStart:
    return EngineStart.objects.create(engine=EngineFactory(name="chat", host=host), number=1, **values)


def test_the_machine_of_the_same_boot_is_taken(olga, host, sshd):
    running(host, boot_id=BOOT)
    ChangeHost(olga, host=host, port=sshd.port).run()
    assert Host.objects.get(pk=host.pk).port == sshd.port
    assert AuditEvent.objects.get(verb="host.change").after["port"] == sshd.port


def test_a_restarted_machine_is_known_by_the_folders_of_its_starts(olga, host, sshd):
    running(host, boot_id=OTHER_BOOT, directory=sshd.users.home("bash").as_posix())
    ChangeHost(olga, host=host, port=sshd.port).run()
    assert Host.objects.get(pk=host.pk).port == sshd.port


def test_another_machine_is_refused(olga, host, sshd):
    old = host.port
    running(host, boot_id=OTHER_BOOT, directory="/nowhere/engines/1/x")
    with pytest.raises(Conflict) as refused:
        ChangeHost(olga, host=host, port=sshd.port).run()
    assert (refused.value.code, refused.value.field) == ("another_machine", "port")
    assert "chat" in refused.value.message
    assert Host.objects.get(pk=host.pk).port == old


def test_an_address_that_does_not_answer_is_refused_and_nothing_changes(olga, host):
    running(host, boot_id=BOOT)
    silent = free_port()
    with pytest.raises(Conflict) as refused:
        ChangeHost(olga, host=host, port=silent).run()
    assert (refused.value.code, refused.value.field) == ("host_unreachable", "port")
    assert Host.objects.get(pk=host.pk).port == host.port


def test_another_host_key_is_refused(olga, host, sshd):
    running(host, boot_id=BOOT)
    Host.objects.filter(pk=host.pk).update(host_key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA==")
    with pytest.raises(Conflict) as refused:
        ChangeHost(olga, host=host, port=sshd.port).run()
    assert refused.value.code == "host_key_changed"


def test_without_engines_any_address_is_taken(olga, host):
    ChangeHost(olga, host=host, address="10.255.0.9").run()
    assert Host.objects.get(pk=host.pk).address == "10.255.0.9"
