"""The plan in the profile editor, on the engine's pages and before a start."""

from __future__ import annotations

import json

import pytest

from engines.launch.plan_check import plan_check
from engines.models import EngineStart, ModelConfig
from engines.planner.rules import GIB
from engines.planning import compare, past_starts, plan
from engines.vllm.spec import ServeSpec
from tests.engines.planner.support import llama, raw
from tests.support.factories import EngineFactory, EnvironmentFactory, HostFactory, RevisionFactory

pytestmark = pytest.mark.django_db

GPU = {
    "index": 0,
    "uuid": "GPU-1",
    "name": "NVIDIA H200",
    "memory_total_mib": 143771,
    "memory_used_mib": 0,
    "memory_free_mib": 143156,
}
ARTICLE = {
    "max_model_len": 32768,
    "gpu_memory_utilization": 0.9,
    "max_num_batched_tokens": 8192,
    "max_num_seqs": 64,
    "block_size": 16,
}


@pytest.fixture
def host():
    return HostFactory(facts={"gpus": [GPU]})


@pytest.fixture
def environment(host):
    return EnvironmentFactory(host=host, version="0.25.1")


def preview(client, environment, **fields):
    data = {"name": "p", "model": "Qwen/Qwen3-8B", "targets_shown": "1", "target": environment.pk}
    return client.post("/profiles/preview/", {**data, **fields}).content.decode()


def test_the_editor_says_what_a_start_would_carry(client, operator, environment):
    client.force_login(operator)
    page = preview(client, environment, **ARTICLE)
    assert "What it would carry" in page
    # what vLLM logged of this very start on such a card
    assert "794,016 tokens" in page
    assert "24.2" in page
    assert "49,626 pages ÷ 2,048 pages" in page
    assert "<polyline" in page


def test_the_editor_names_the_longest_length_that_starts(client, operator, environment):
    client.force_login(operator)
    page = preview(
        client, environment, **{**ARTICLE, "gpu_memory_utilization": "0.14", "enforce_eager": "on"}
    )
    assert "23,552 tokens are the longest that starts" in page


def test_a_model_that_nobody_knows_is_not_guessed(client, operator, environment):
    client.force_login(operator)
    page = preview(client, environment, model="acme/unheard-of")
    assert "The shape of acme/unheard-of is not known" in page


def test_a_config_that_cannot_be_used_gets_its_sentence(client, operator, environment, host):
    ModelConfig.objects.create(host=host, path="/models/odd", name="odd", config=llama(num_attention_heads=0))
    client.force_login(operator)
    assert "num_attention_heads” is 0" in preview(client, environment, model="/models/odd")


def test_a_pasted_config_stands_for_a_model_on_no_host(client, operator, environment):
    client.force_login(operator)
    page = preview(client, environment, model="acme/unheard-of", plan_config=json.dumps(llama()), **ARTICLE)
    assert "Requests at once" in page
    assert "is not JSON" in preview(client, environment, model="acme/unheard-of", plan_config="{")


def test_the_planner_answers_the_other_way_round(client, operator, environment):
    client.force_login(operator)
    asked = {**ARTICLE, "plan_requests": "64", "plan_length": "16384"}
    page = preview(client, environment, **asked)
    assert "1 GPU, a share of" in page
    assert "cache type fp8" in page
    assert "up to 40,960 tokens" in preview(client, environment, **{**asked, "plan_length": "50000"})
    assert "No share and cache type" in preview(client, environment, **{**asked, "plan_requests": "9000"})


def test_flags_among_the_extra_arguments_count(client, operator, environment):
    client.force_login(operator)
    page = preview(client, environment, extra_arguments="--num-gpu-blocks-override 1000", **ARTICLE)
    assert "16,000 tokens" in page


@pytest.mark.parametrize("person", ["viewer", "outsider"])
def test_the_preview_is_for_those_who_change_profiles(client, request, person, environment):
    client.force_login(request.getfixturevalue(person))
    response = client.post("/profiles/preview/", {"model": "Qwen/Qwen3-8B"})
    assert response.status_code == 403


def test_the_preview_wants_a_sign_in(client):
    assert client.post("/profiles/preview/", {"model": "Qwen/Qwen3-8B"}).status_code == 302


def started(host, version="0.25.1", **facts):
    engine = EngineFactory(host=host, revision=RevisionFactory(values=ARTICLE))
    return EngineStart.objects.create(
        engine=engine, number=1, revision=engine.revision, vllm_version=version, facts=facts
    )


def test_a_start_is_compared_with_what_was_expected(host):
    found = compare([started(host, kv_gib=109.04, kv_tokens=794016, max_concurrency=24.23)])[0]
    assert found.tokens == 794016
    assert found.error == 0


def test_an_earlier_start_corrects_the_next(host):
    spec = ServeSpec(model="Qwen/Qwen3-8B", values=ARTICLE)
    blind = plan(spec, host, "0.25.1")
    started(host, kv_gib=108.04, kv_tokens=786000)
    assert len(past_starts(host, "0.25.1")) == 1
    corrected = plan(spec, host, "0.25.1")
    assert corrected.corrected_by == 1
    assert (blind.available - corrected.available) / GIB == pytest.approx(1, abs=0.01)
    # a start is never corrected by itself
    again = compare(EngineStart.objects.all())[0]
    assert again.corrected_by == 0


def test_the_engines_pages_show_expected_beside_found(client, viewer, host):
    start = started(host, kv_gib=109.04, kv_tokens=794016, max_concurrency=24.23)
    engine = start.engine
    engine.current_start = start
    engine.save()
    client.force_login(viewer)
    page = client.get(f"/engines/{engine.pk}/starts").content.decode()
    assert "Expected and found" in page
    assert "0.00%" in page
    assert "expected" in client.get(engine.get_absolute_url()).content.decode()


def test_a_start_that_would_fail_is_refused_and_may_be_overridden(host):
    spec = ServeSpec(model="Qwen/Qwen3-8B", values={**ARTICLE, "gpu_memory_utilization": 0.14})
    (check,) = plan_check(spec, "0.25.1", host)
    assert not check.ok and check.safe
    assert "longest that starts" in str(check.text)
    (fine,) = plan_check(ServeSpec(model="Qwen/Qwen3-8B", values=ARTICLE), "0.25.1", host)
    assert fine.ok and "794,016 tokens" in str(fine.text)
    assert plan_check(ServeSpec(model="acme/unheard-of"), "0.25.1", host) == []


def test_vllm_for_processors_takes_the_space_it_is_given(host):
    ModelConfig.objects.create(
        host=host,
        path="/models/tiny",
        name="tiny",
        config=raw("Qwen3-8B")
        | {
            "hidden_size": 64,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "num_hidden_layers": 2,
        },
    )
    spec = ServeSpec(
        model="/models/tiny",
        values={"max_model_len": 2048, "enforce_eager": True},
        environment={"VLLM_CPU_KVCACHE_SPACE": "1"},
    )
    found = plan(spec, host, "0.32.0+cpu")
    # as the real one logged
    assert (found.tokens, found.concurrency) == (2_097_152, 1024)


def test_all_starts_are_listed_with_their_errors(client, viewer, host):
    for tokens in (794016, 786000):
        started(host, kv_gib=109.04, kv_tokens=tokens)
    client.force_login(viewer)
    page = client.get("/engines/starts").content.decode()
    assert page.count("qwen3-8b-v") >= 2
    assert "1.02%" in page
    assert "Older starts" not in page


def test_many_starts_come_in_pages(client, viewer, host):
    engine = started(host, kv_tokens=794016).engine
    EngineStart.objects.bulk_create(
        EngineStart(engine=engine, number=number, vllm_version="", facts={"kv_tokens": 1})
        for number in range(2, 25)
    )
    client.force_login(viewer)
    page = client.get("/engines/starts").content.decode()
    assert "Older starts" in page
    last = EngineStart.objects.order_by("-pk")[19].pk
    assert f"?before={last}" in page
    assert "Older starts" not in client.get(f"/engines/starts?before={last}").content.decode()


def test_the_list_of_starts_is_for_those_who_see_engines(client, outsider, host):
    started(host, kv_tokens=794016)
    assert client.get("/engines/starts").status_code == 302
    client.force_login(outsider)
    assert client.get("/engines/starts").status_code == 403
