import re

import pytest
from django.urls import reverse

from engines.choices import HostKind, HostState, OperationKind, OperationState
from engines.models import Host, Operation
from engines.ssh import keys
from kvadmin.models import AuditEvent
from tests.support.factories import EngineFactory, EnvironmentFactory, HostFactory
from tests.support.facts import FACTS

pytestmark = pytest.mark.django_db

KEY = keys.generate("host")
OTHER = keys.generate("host")


@pytest.fixture
def host():
    from django.utils import timezone

    return HostFactory(name="h200-a", facts=FACTS, facts_at=timezone.now(), host_key=KEY.public)


def pages(host):
    return [
        reverse("engines:host_list"),
        reverse("engines:host_detail", args=[host.pk]),
        reverse("engines:host_status", args=[host.pk]),
        reverse("engines:host_gpu_memory", args=[host.pk]),
    ]


def changing_pages(host):
    return [
        reverse("engines:host_add"),
        reverse("engines:host_edit", args=[host.pk]),
        reverse("engines:host_provision", args=[host.pk]),
    ]


BUTTONS = ["host_test", "host_confirm", "host_probe", "host_discover", "host_remove", "host_register"]


def test_it_shows_pages_to_a_viewer_and_not_to_an_outsider(client, host, viewer, outsider):
    client.force_login(viewer)
    for url in pages(host):
        assert client.get(url).status_code == 200, url
    for url in changing_pages(host):
        assert client.get(url).status_code == 403, url
    client.force_login(outsider)
    for url in pages(host) + changing_pages(host):
        assert client.get(url).status_code == 403, url


def test_it_sends_anonymous_people_to_sign_in(client, host):
    for url in pages(host) + changing_pages(host):
        assert client.get(url).status_code == 302, url


@pytest.mark.parametrize("name", BUTTONS)
def test_a_viewer_cannot_press_a_button(client, host, viewer, name):
    client.force_login(viewer)
    assert client.post(reverse(f"engines:{name}", args=[host.pk])).status_code == 403
    assert Host.objects.filter(pk=host.pk).exists()
    assert not Operation.objects.exists()


def test_a_viewer_sees_no_button_that_would_be_refused(client, host, viewer, operator):
    client.force_login(viewer)
    page = client.get(host.get_absolute_url()).content.decode()
    assert reverse("engines:host_probe", args=[host.pk]) not in page
    client.force_login(operator)
    page = client.get(host.get_absolute_url()).content.decode()
    assert reverse("engines:host_probe", args=[host.pk]) in page


def test_a_host_without_gpu_says_so(client, viewer):
    from django.utils import timezone

    host = HostFactory(facts={**FACTS, "gpus": [], "gpu_note": "No NVIDIA driver."}, facts_at=timezone.now())
    client.force_login(viewer)
    page = client.get(host.get_absolute_url()).content.decode()
    assert "No GPU" in page
    assert "No NVIDIA driver." in page


def test_the_list_names_each_version_once(client, viewer):
    host = HostFactory()
    for version in ("0.32.0", "0.33.0", "0.32.0"):
        EnvironmentFactory(host=host, version=version)
    client.force_login(viewer)
    assert "<td>0.32.0, 0.33.0</td>" in client.get(reverse("engines:host_list")).content.decode()


def test_nothing_is_offered_on_a_host_on_which_nothing_is_done(client, operator):
    client.force_login(operator)
    for values, offered in (
        ({"state": HostState.ONLINE}, True),
        ({"state": HostState.UNREACHABLE}, True),
        ({"state": HostState.BLOCKED}, False),
        ({"state": HostState.CONFIRM, "host_key": ""}, False),
    ):
        host = HostFactory(**values)
        page = client.get(host.get_absolute_url()).content.decode()
        assert reverse("engines:host_test", args=[host.pk]) in page
        for name in ("host_probe", "host_discover", "host_provision"):
            assert (reverse(f"engines:{name}", args=[host.pk]) in page) is offered, (name, values)


def test_the_list_filters_and_searches(client, host, viewer):
    HostFactory(name="l40s-b", state=HostState.UNREACHABLE)
    client.force_login(viewer)
    url = reverse("engines:host_list")
    names = [row["host"].name for row in client.get(url).context["rows"]]
    assert names == ["h200-a", "l40s-b"]
    assert [row["host"].name for row in client.get(url, {"state": "trouble"}).context["rows"]] == ["l40s-b"]
    assert [row["host"].name for row in client.get(url, {"q": "nvidia h200"}).context["rows"]] == ["h200-a"]
    assert "No host matches" in client.get(url, {"q": "nothing"}).content.decode()


def test_an_empty_list_names_the_next_step(client, operator):
    client.force_login(operator)
    page = client.get(reverse("engines:host_list")).content.decode()
    assert "No hosts yet" in page
    assert reverse("engines:host_add") in page


def sent(**changes):
    return {
        "name": "h200-b", "address": "10.0.3.14", "port": "22", "username": "ops", "sign_in": "key",
        "private_key": KEY.private, "work_dir": "~/.kvadmin", **changes,
    }  # fmt: skip


def test_adding_keeps_the_input_and_no_secret_when_something_is_wrong(client, operator):
    client.force_login(operator)
    answer = client.post(reverse("engines:host_add"), sent(address="ops@10.0.3.14", passphrase="open sesame"))
    page = answer.content.decode()
    assert answer.status_code == 200
    assert "ops@10.0.3.14" in page
    assert "Give the user in its own field" in page
    assert "PRIVATE KEY-----\nb3B" not in page
    assert KEY.private.splitlines()[1] not in page
    assert "open sesame" not in page
    assert not Host.objects.exists()


def test_adding_a_host_with_a_pasted_key(client, operator):
    client.force_login(operator)
    answer = client.post(reverse("engines:host_add"), sent())
    host = Host.objects.get(name="h200-b")
    assert answer.url == host.get_absolute_url()
    assert host.public_key.startswith("ssh-ed25519 ")
    assert host.private_key == KEY.private
    event = AuditEvent.objects.get(verb="host.add")
    assert event.actor == operator
    assert "PRIVATE" not in str(event.after)


def test_adding_with_an_uploaded_key(client, operator):
    from django.core.files.uploadedfile import SimpleUploadedFile

    client.force_login(operator)
    file = SimpleUploadedFile("id_ed25519", KEY.private.encode())
    client.post(reverse("engines:host_add"), sent(private_key="", key_file=file))
    assert Host.objects.get(name="h200-b").private_key == KEY.private
    answer = client.post(
        reverse("engines:host_add"),
        sent(name="other", private_key="", key_file=SimpleUploadedFile("x", b"\xff\xfe\x00")),
    )
    assert "not a private key in text form" in answer.content.decode()


def test_adding_with_a_key_and_a_password(client, operator):
    client.force_login(operator)
    answer = client.post(reverse("engines:host_add"), sent(sign_in="both"))
    assert "Give the password to sign in with." in answer.content.decode()
    client.post(reverse("engines:host_add"), sent(sign_in="both", password="correct horse"))
    host = Host.objects.get(name="h200-b")
    assert (host.auth, host.private_key, host.password) == ("both", KEY.private, "correct horse")
    edit = reverse("engines:host_edit", args=[host.pk])
    assert "Keep the present key and password" in client.get(edit).content.decode()
    client.post(edit, sent(sign_in="keep", private_key=""))
    host.refresh_from_db()
    assert (host.auth, host.private_key, host.password) == ("both", KEY.private, "correct horse")


def test_what_the_chosen_way_needs_is_not_called_optional(client, operator):
    client.force_login(operator)
    page = client.get(reverse("engines:host_add")).content.decode()
    labels = dict(re.findall(r'<label for="id_(\w+)">(.*?)</label>', page, re.S))
    assert "optional" in labels["passphrase"]
    for name in ("private_key", "key_file", "password"):
        assert "optional" not in labels[name]


def test_a_generated_key_shows_its_line_and_the_command(client, operator):
    client.force_login(operator)
    client.post(reverse("engines:host_add"), sent(sign_in="generate", private_key=""))
    host = Host.objects.get(name="h200-b")
    page = client.get(host.get_absolute_url()).content.decode()
    assert host.public_key in page
    assert "authorized_keys" in page
    assert host.private_key.splitlines()[1] not in page


def test_behind_a_jump_host_the_service_address_is_asked_for(client, host, operator):
    client.force_login(operator)
    answer = client.post(reverse("engines:host_add"), sent(jump=host.pk))
    assert "Behind a jump host" in answer.content.decode()
    client.post(reverse("engines:host_add"), sent(jump=host.pk, service_address="10.9.0.4"))
    assert Host.objects.get(name="h200-b").service_host == "10.9.0.4"


def test_editing_keeps_the_key_unless_another_is_given(client, operator):
    host = HostFactory(private_key=KEY.private, public_key=KEY.public)
    client.force_login(operator)
    url = reverse("engines:host_edit", args=[host.pk])
    page = client.get(url).content.decode()
    assert KEY.private.splitlines()[1] not in page
    client.post(url, sent(name="renamed", sign_in="keep", private_key=""))
    host.refresh_from_db()
    assert (host.name, host.private_key) == ("renamed", KEY.private)
    client.post(url, sent(name="renamed", sign_in="password", private_key="", password="correct horse"))
    host.refresh_from_db()
    assert (host.auth, host.password, host.private_key, host.public_key) == (
        "password",
        "correct horse",
        "",
        "",
    )
    event = AuditEvent.objects.filter(verb="host.change").first()
    assert event.after["credentials"] == "replaced"
    assert "correct horse" not in str(event.before) + str(event.after)


def test_a_changed_key_shows_both_fingerprints(client, viewer, operator):
    host = HostFactory(host_key=KEY.public, offered_key=OTHER.public, state=HostState.BLOCKED)
    client.force_login(viewer)
    page = client.get(host.get_absolute_url()).content.decode()
    assert keys.fingerprint(KEY.public) in page
    assert keys.fingerprint(OTHER.public) in page
    assert "The host key has changed" in page
    assert reverse("engines:host_confirm", args=[host.pk]) not in page


def test_the_status_fragment_asks_for_a_fresh_page_once_something_changed(client, host, viewer):
    client.force_login(viewer)
    mark = client.get(host.get_absolute_url()).context["mark"]
    url = reverse("engines:host_status", args=[host.pk])
    assert "HX-Refresh" not in client.get(url, {"mark": mark}).headers
    Operation.objects.create(kind=OperationKind.PROBE, host=host, state=OperationState.RUNNING)
    assert client.get(url, {"mark": mark}).headers["HX-Refresh"] == "true"


def test_detail_shows_the_facts(client, host, viewer):
    EnvironmentFactory(host=host, version="0.33.0")
    EngineFactory(host=host, name="qwen3-8b-v1")
    client.force_login(viewer)
    page = client.get(host.get_absolute_url()).content.decode()
    for text in ("NVIDIA H200", "68.4 GiB / 140 GiB", "mallory", "not kvadmin", "3.12.3", "0.33.0",
                 "Qwen/Qwen3-8B", "16.0 GiB", "qwen3-8b-v1", "580.65.06"):  # fmt: skip
        assert text in page, text
    assert "style=" not in page


def test_this_machine_is_one_click(client, operator):
    client.force_login(operator)
    client.post(reverse("engines:host_add_local"))
    host = Host.objects.get(kind=HostKind.LOCAL)
    assert Operation.objects.get(host=host).kind == OperationKind.PROBE
    client.post(reverse("engines:host_add_local"))
    assert Host.objects.count() == 1


def test_confirming_the_shown_fingerprint(client, operator):
    host = HostFactory(host_key="", offered_key=KEY.public, state=HostState.CONFIRM)
    client.force_login(operator)
    url = reverse("engines:host_confirm", args=[host.pk])
    client.post(url, {"fingerprint": keys.fingerprint(OTHER.public)})
    host.refresh_from_db()
    assert host.host_key == ""
    client.post(url, {"fingerprint": keys.fingerprint(KEY.public)})
    host.refresh_from_db()
    assert host.host_key == KEY.public
    assert Operation.objects.get(host=host).kind == OperationKind.PROBE


def test_removing_is_refused_with_the_engines_named(client, host, operator):
    EngineFactory(host=host, name="qwen3-8b-v1")
    client.force_login(operator)
    answer = client.post(reverse("engines:host_remove", args=[host.pk]), follow=True)
    assert "qwen3-8b-v1" in answer.content.decode()
    assert Host.objects.filter(pk=host.pk).exists()
    host.engines.all().delete()
    answer = client.post(reverse("engines:host_remove", args=[host.pk]), follow=True)
    assert answer.redirect_chain == [(reverse("engines:host_list"), 302)]
    assert AuditEvent.objects.get(verb="host.remove").subject_id == str(host.pk)


def test_provisioning_from_the_form(client, host, operator):
    client.force_login(operator)
    url = reverse("engines:host_provision", args=[host.pk])
    assert client.get(url).context["form"].initial["version"] == "0.33.0"
    answer = client.post(url, {"version": "newest", "variant": "cuda", "source": "wheels", "python": "three"})
    page = answer.content.decode()
    assert "for example 0.33.0" in page
    assert "no wheel folder" in page
    assert 'value="newest"' in page
    answer = client.post(url, {"version": "0.33.0", "variant": "cuda", "source": "index", "python": "3.12"})
    operation = Operation.objects.get(kind=OperationKind.PROVISION)
    assert operation.parameters["python"] == "python3.12"
    assert answer.url == operation.get_absolute_url()
