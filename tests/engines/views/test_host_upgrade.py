"""Before an upgrade: what another vLLM changes for each engine of a host."""

from __future__ import annotations

import pytest
from django.urls import reverse

from engines.vllm.releases import release
from engines.vllm.spec import ServeSpec
from engines.vllm.target import Card, Target
from engines.vllm.upgrade import upgrade
from kvadmin.policies import Role
from tests.support.factories import EngineFactory, EnvironmentFactory, HostFactory, RevisionFactory
from tests.support.people import make_person

pytestmark = pytest.mark.django_db


def outlook(spec: ServeSpec, old: str, new: str, cards=None):
    return upgrade(spec, Target("h", release(old), cards), Target("h", release(new), cards))


def test_it_shows_what_is_left_out_said_otherwise_and_refused():
    spec = ServeSpec(
        "m",
        values={"swap_space": 4.0, "max_num_seqs": 8, "attention_backend": "FLASHINFER"},
        extra_arguments="--task embed --rope-theta 1000",
    )
    found = outlook(spec, "0.10.2", "0.33.0")
    assert {change.flag: (change.before, change.after) for change in found.changes} == {
        "--swap-space": (("--swap-space", "4.0"), ()),
        "--attention-backend": (
            ("VLLM_ATTENTION_BACKEND=FLASHINFER",),
            ("--attention-backend", "FLASHINFER"),
        ),
        "--task": (("--task", "embed"), ("--runner", "pooling", "--convert", "embed")),
    }
    assert [note.code for note in found.notes] == ["flag_refused", "flag_gone", "flag_replaced"]
    assert not found.new.starts
    assert found.old.starts


def test_it_shows_defaults_that_move_where_the_profile_leaves_them():
    moves = {move.flag: move for move in outlook(ServeSpec("m"), "0.19.1", "0.20.0").moves}
    assert (
        moves["--gpu-memory-utilization"].before.value,
        moves["--gpu-memory-utilization"].after.value,
    ) == (
        "0.9",
        "0.92",
    )
    kept = outlook(ServeSpec("m", values={"gpu_memory_utilization": 0.9}), "0.19.1", "0.20.0")
    assert "--gpu-memory-utilization" not in {move.flag for move in kept.moves}


def test_it_is_quiet_where_nothing_changes():
    spec = ServeSpec("m", values={"max_model_len": 4096})
    assert outlook(spec, "0.33.0", "0.33.0").quiet
    assert not outlook(spec, "0.10.2", "0.33.0").quiet


def test_what_is_wrong_already_is_said_again_only_if_it_forbids_the_start():
    spec = ServeSpec("m", values={"kv_cache_dtype": "fp8", "tensor_parallel_size": 4})
    found = outlook(spec, "0.32.0", "0.33.0", (Card("0", "NVIDIA A100-SXM4-80GB"),))
    assert [note.code for note in found.notes] == ["more_gpus_than_host"]


@pytest.fixture
def host():
    host = HostFactory(name="h200-1")
    old = EnvironmentFactory(host=host, version="0.10.2")
    EnvironmentFactory(host=host, version="0.33.0")
    revision = RevisionFactory(
        values={"max_model_len": 4096}, extra_arguments="--swap-space 4 --guided-decoding-backend xgrammar"
    )
    EngineFactory(name="chat-1", host=host, environment=old, revision=revision)
    EngineFactory(name="adopted-1", host=host, environment=None, revision=None)
    return host


def test_the_page_names_every_engine_and_what_changes(client, host):
    client.force_login(make_person("vera", Role.VIEWER))
    html = client.get(reverse("engines:host_upgrade", args=[host.pk]), {"to": "0.33.0"}).content.decode()
    assert "What vLLM 0.33.0 would change" in html
    assert "chat-1" in html
    assert "Starts, with changes" in html
    assert "<del>--swap-space 4</del>" in html
    assert "structured-outputs-config" in html
    assert "1 adopted engine has no profile" in html
    assert "Defaults that move" in html
    assert "Edit the profile" not in html  # a viewer


def test_the_page_offers_what_is_installed_and_the_catalogue(client, host):
    EnvironmentFactory(host=host, version="0.40.0")
    client.force_login(make_person("olga", Role.OPERATOR))
    url = reverse("engines:host_upgrade", args=[host.pk])
    html = client.get(url).content.decode()
    assert "What vLLM 0.40.0 would change" in html
    assert "The flags of vLLM 0.33.0 stand in for it." in html
    assert "What vLLM 0.40.0 would change" in client.get(url, {"to": "nonsense"}).content.decode()


def test_only_who_sees_hosts_sees_the_page(client, host):
    url = reverse("engines:host_upgrade", args=[host.pk])
    assert client.get(url).status_code == 302
    client.force_login(make_person("otto", Role.MEMBER))
    assert client.get(url).status_code in {403, 404}
