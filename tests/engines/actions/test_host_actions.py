"""Adding, changing, confirming and removing hosts."""

import pytest

from engines.actions.add_host import AddHost
from engines.actions.change_host import ChangeHost
from engines.actions.confirm_host_key import ConfirmHostKey
from engines.actions.contact_host import ContactHost
from engines.actions.remove_host import RemoveHost
from engines.choices import HostKind, HostState, OperationKind, OperationState
from engines.models import EngineStart, Host, Operation
from engines.operations import runner
from engines.ssh import keys
from engines.tasks.contact import contact_host
from kvadmin.actions import Actor, Conflict, Denied, Invalid
from kvadmin.models import AuditEvent
from tests.support.factories import EngineFactory, HostFactory

pytestmark = pytest.mark.django_db

OLD, NEW = keys.generate("h").public, keys.generate("h").public
GIVEN = {"name": "h200-a", "address": "10.0.3.14", "username": "ops", "generate_key": True}


@pytest.fixture
def olga(operator):
    return Actor(user=operator, source="web", ip="10.1.1.1")


def test_nobody_but_an_operator_changes_hosts(viewer, outsider):
    host = HostFactory(offered_key=NEW, host_key="")
    for person in (viewer, outsider):
        actor = Actor(user=person)
        for action in (
            AddHost(actor, **GIVEN),
            ChangeHost(actor, host=host, name="x"),
            RemoveHost(actor, host=host),
            ConfirmHostKey(actor, host=host, fingerprint=keys.fingerprint(NEW)),
            ContactHost(actor, host=host),
        ):
            with pytest.raises(Denied):
                action.run()
    assert Host.objects.get().name == host.name
    assert not AuditEvent.objects.exists()


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": "  "}, "name"),
        ({"address": ""}, "address"),
        ({"address": "ssh://10.0.3.14"}, "address"),
        ({"address": "10.0.3.14:22"}, "address"),
        ({"address": "-oProxyCommand=x"}, "address"),
        ({"port": 0}, "port"),
        ({"username": "root; reboot"}, "username"),
        ({"auth": "agent"}, "auth"),
        ({"auth": "password"}, "password"),
        ({"generate_key": False}, "private_key"),
        ({"generate_key": False, "private_key": "ssh-ed25519 AAAA"}, "private_key"),
        ({"work_dir": "relative/path"}, "work_dir"),
        ({"work_dir": "/"}, "work_dir"),
        ({"work_dir": "/srv/../etc"}, "work_dir"),
        ({"model_dirs": ["/srv/models", "models"]}, "model_dirs"),
        ({"index_url": "packages.example.com"}, "index_url"),
        ({"index_url": "https://user:secret@packages.example.com/simple"}, "index_url"),
        ({"proxy": "http://proxy:port"}, "proxy"),
        ({"wheel_dir": "wheels"}, "wheel_dir"),
        ({"service_address": "http://10.0.3.14"}, "service_address"),
        ({"kind": "cloud"}, "kind"),
    ],
)
def test_wrong_input_is_named_at_its_field(olga, wrong, field):
    with pytest.raises(Invalid) as refused:
        AddHost(olga, **{**GIVEN, **wrong}).run()
    assert list(refused.value.errors) == [field]
    assert "secret" not in str(refused.value.errors)
    assert not Host.objects.exists()


@pytest.mark.parametrize("address", ["gpu-1.example.com", "10.0.3.14", "fd00::14", "[fd00::14]", " h200 "])
def test_addresses_that_are_meant(olga, address):
    host = AddHost(olga, **{**GIVEN, "address": address}).run()
    assert host.address == address.strip().strip("[]")


def test_several_mistakes_come_together(olga):
    HostFactory(name="taken")
    with pytest.raises(Invalid) as refused:
        AddHost(olga, name="taken", address="", username="").run()
    assert set(refused.value.errors) == {"name", "address", "username", "private_key"}


def test_there_is_one_this_machine(olga):
    host = AddHost(olga, name="here", kind=HostKind.LOCAL, address="ignored").run()
    assert host.operations.get().kind == OperationKind.PROBE
    with pytest.raises(Invalid):
        AddHost(olga, name="again", kind=HostKind.LOCAL).run()


def test_jump_hosts_do_not_lead_back(olga):
    first = HostFactory(name="first", private_key="x")
    second = HostFactory(name="second", jump=first, service_address="10.9.9.9")
    with pytest.raises(Invalid) as refused:
        ChangeHost(olga, host=first, jump=second, service_address="10.9.9.8").run()
    assert refused.value.field == "jump"
    with pytest.raises(Conflict) as in_use:
        RemoveHost(olga, host=first).run()
    assert in_use.value.code == "host_is_jump"


def test_a_change_writes_what_was_and_what_is(olga):
    host = HostFactory(name="before", password="", private_key="x", host_key=OLD)
    ChangeHost(olga, host=host, name="after", port=2222).run()
    host.refresh_from_db()
    assert (host.name, host.port, host.host_key, host.private_key) == ("after", 2222, OLD, "x")
    event = AuditEvent.objects.get(verb="host.change")
    assert (event.before["name"], event.after["name"], event.ip) == ("before", "after", "10.1.1.1")
    assert "credentials" not in event.after


@pytest.mark.parametrize("moved", ["username", "work_dir"])
def test_user_and_folder_stay_while_an_engine_may_run_there(olga, moved):
    host = HostFactory(private_key="x", service_address="10.9.9.9")
    start = EngineStart.objects.create(engine=EngineFactory(name="chat", host=host), number=1)
    values = {"username": "other", "work_dir": "/srv/other"}
    change = {moved: values[moved]}
    with pytest.raises(Conflict) as refused:
        ChangeHost(olga, host=host, **change).run()
    assert (refused.value.code, refused.value.field) == ("host_has_running_engines", moved)
    assert "chat" in refused.value.message
    ChangeHost(olga, host=host, name="other", service_address="10.9.9.8", generate_key=True).run()
    EngineStart.objects.filter(pk=start.pk).update(ended_at=start.created_at)
    ChangeHost(olga, host=host, **change).run()
    assert getattr(Host.objects.get(pk=host.pk), moved) == values[moved]


def test_a_key_that_moved_meanwhile_is_refused(olga):
    host = HostFactory(host_key="", offered_key=NEW, state=HostState.CONFIRM)
    with pytest.raises(Conflict) as refused:
        ConfirmHostKey(olga, host=host, fingerprint=keys.fingerprint(OLD)).run()
    assert refused.value.code == "host_key_moved"
    Host.objects.update(offered_key="")
    with pytest.raises(Conflict) as refused:
        ConfirmHostKey(olga, host=host, fingerprint=keys.fingerprint(NEW)).run()
    assert refused.value.code == "no_offered_key"


def test_a_changed_key_needs_the_explicit_choice(olga):
    host = HostFactory(host_key=OLD, offered_key=NEW, state=HostState.BLOCKED)
    with pytest.raises(Invalid):
        ConfirmHostKey(olga, host=host, fingerprint=keys.fingerprint(NEW)).run()
    ConfirmHostKey(olga, host=host, fingerprint=keys.fingerprint(NEW), replace=True).run()
    host.refresh_from_db()
    assert (host.host_key, host.offered_key, host.state) == (NEW, "", HostState.NEW)
    event = AuditEvent.objects.get(verb="host.confirm_key")
    assert event.before == {"fingerprint": keys.fingerprint(OLD)}
    assert event.after == {"fingerprint": keys.fingerprint(NEW)}


def test_removing_waits_for_what_is_under_way(olga):
    host = HostFactory()
    Operation.objects.create(kind=OperationKind.PROBE, host=host, state=OperationState.RUNNING)
    with pytest.raises(Conflict) as refused:
        RemoveHost(olga, host=host).run()
    assert refused.value.code == "operation_active"


def test_first_contact_over_ssh_ends_with_a_probed_host(olga, sshd, ssh_users):
    host = AddHost(
        olga,
        name="loopback",
        address="127.0.0.1",
        port=sshd.port,
        username=ssh_users.names["bash"],
        private_key=ssh_users.pair.private,
    ).run()
    contact_host(host.pk)
    host.refresh_from_db()
    assert (host.state, host.host_key) == (HostState.CONFIRM, "")
    assert keys.fingerprint(host.offered_key) == keys.fingerprint(sshd.host_key)
    ConfirmHostKey(olga, host=host, fingerprint=keys.fingerprint(host.offered_key)).run()
    probe = host.operations.get(kind=OperationKind.PROBE)
    while runner.tick(probe.pk) is not None:
        pass
    host.refresh_from_db()
    assert host.state == HostState.ONLINE
    assert host.facts["os"]["kernel"]
    test = ContactHost(olga, host=host)
    test.run()
    assert test.connected
    assert "signed in" in test.sentence


def test_a_wrong_password_is_an_answer_not_an_error(olga, sshd, ssh_users):
    host = HostFactory(
        address="127.0.0.1",
        port=sshd.port,
        username=ssh_users.names["bash"],
        auth="password",
        password="not this one",
        host_key=sshd.host_key,
    )
    test = ContactHost(olga, host=host)
    test.run()
    host.refresh_from_db()
    assert (test.connected, host.state) == (False, HostState.REFUSED)
    assert "not this one" not in host.state_text + test.sentence
