"""The flows with a real vLLM (CPU build), and the simulated one held against it.

One start takes one to two minutes on a quiet machine, and 3 GB.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from engines.choices import HostAuth, HostKind
from engines.flag_lists import release_for
from engines.launch import reconcile, remote
from engines.launch.identity import identity_of
from engines.models import Engine, EngineStart
from engines.ssh.local import local_session
from engines.vllm import log
from engines.vllm.notes import Severity
from engines.vllm.reading import read_text
from engines.vllm.target import Target, judge
from kvadmin.env import BASE_DIR
from tests.engines.life.conftest import Place, free_port
from tests.support import real_vllm, simulated_engine
from tests.support.factories import EngineFactory, HostFactory, RevisionFactory

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


@pytest.fixture(scope="session")
def vllm() -> Path:
    return real_vllm.executable()


@pytest.fixture(scope="session")
def tiny(vllm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with random weights, made by the demo's script with vLLM's own Python."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    script = BASE_DIR / "kvadmin" / "demo" / "tiny_model.py"
    subprocess.run([str(vllm.parent / "python"), str(script), str(folder)], check=True, timeout=600)
    return folder


@pytest.fixture
def real(db, tmp_path: Path, vllm: Path, tiny: Path) -> Iterator[Place]:
    host = HostFactory(kind=HostKind.LOCAL, auth=HostAuth.NONE, address="", work_dir=str(tmp_path / "work"))
    here = local_session()
    yield Place(host, vllm, tiny, lambda _host: here)
    for start in EngineStart.objects.all():
        remote.end_all(here, identity_of(start), grace_s=0)


def real_engine(place: Place) -> Engine:
    engine = place.engine()
    revision = engine.revision
    revision.__class__.objects.filter(pk=revision.pk).update(
        values={"max_model_len": 2048, "max_num_seqs": 16, "enforce_eager": True}, environment=ENVIRONMENT
    )
    Engine.objects.filter(pk=engine.pk).update(desired="running")
    engine.refresh_from_db()
    return engine


def start(place: Place, engine: Engine) -> None:
    engine.move("starting", only_from=("stopped", "failed"))
    operation = place.drive(place.begin("start", engine), limit_s=1500)
    text = Path(engine.starts.first().log_path).read_text()[-3000:]
    assert operation.state == "succeeded", (operation.message, text)
    engine.refresh_from_db()
    assert engine.observed == "ready"


def shape(value: object) -> object:
    """A JSON answer with its values left out."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value else type(value).__name__


def test_it_serves_with_its_key_and_leaves_no_worker_when_its_leader_is_killed_alone(real, tmp_path):
    engine = real_engine(real)
    start(real, engine)
    facts = engine.current_start.facts
    assert facts["version"].startswith("0.")
    assert facts["kv_tokens"] > 0
    assert facts["phase"] == "ready"
    assert engine.max_model_len == 2048
    names = {one.name for one in real.processes(engine)}
    assert any(name.startswith("VLLM::EngineCor") for name in names), names
    assert {one.marker for one in real.processes(engine)} == {str(engine.current_start.marker)}

    url = engine.base_url + "/v1/chat/completions"
    body = {"model": "tiny", "messages": [{"role": "user", "content": "the quick"}], "max_tokens": 5}
    assert httpx.post(url, json=body, timeout=60).status_code == 401
    key = {"Authorization": f"Bearer {engine.api_key}"}
    answer = httpx.post(url, json=body, headers=key, timeout=60).json()
    assert answer["usage"]["completion_tokens"] > 0
    assert [one["code"] for one in engine.current_start.facts["findings"]] == ["open_completion_path"]

    compare_with_the_simulated_one(real, engine, tmp_path)

    pids = [one.pid for one in real.processes(engine)]
    assert len(pids) >= 4
    os.kill(engine.current_start.pid, signal.SIGKILL)
    reconcile.reconcile_host(real.host.pk, connect=real.connect)
    engine.refresh_from_db()
    assert engine.observed == "failed"
    assert real.processes(engine) == []
    assert not [pid for pid in pids if Path(f"/proc/{pid}/exe").exists()]


def test_a_stop_leaves_no_process(real):
    engine = real_engine(real)
    start(real, engine)
    pids = [one.pid for one in real.processes(engine)]
    operation = real.stop(engine)
    assert operation.state == "succeeded", operation.message
    assert engine.observed == "stopped"
    assert not [pid for pid in pids if Path(f"/proc/{pid}/exe").exists()]
    engine.current_start.refresh_from_db()
    assert engine.current_start.exit_status == 0


def compare_with_the_simulated_one(real: Place, engine: Engine, tmp_path: Path) -> None:
    """Same statuses and shapes from both, and the log patterns that the double prints are vLLM's."""
    double = Place.__new__(Place)
    double.__dict__.update(real.__dict__)
    double.vllm = real.vllm.__class__.objects.create(
        host=real.host,
        path=str(tmp_path / "double"),
        executable=str(simulated_engine.install(tmp_path / "double")),
        version="0.32.0+cpu",
    )
    other = double.engine()
    other.move("starting", only_from=("stopped",))
    assert double.drive(double.begin("start", other)).state == "succeeded"
    other.refresh_from_db()

    body = {"model": "tiny", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
    for method, path, sent, with_key in [
        ("GET", "/health", None, False),
        ("GET", "/v1/models", None, False),
        ("GET", "/v1/models", None, True),
        ("GET", "/metrics", None, False),
        ("GET", "/nothing", None, False),
        ("POST", "/v1/chat/completions", body, False),
        ("POST", "/invocations", body, False),
        ("POST", "/tokenize", {"model": "tiny", "prompt": "a"}, False),
    ]:
        answers = [
            httpx.request(
                method,
                one.base_url + path,
                json=sent,
                headers={"Authorization": f"Bearer {one.api_key}"} if with_key else {},
                timeout=60,
            )
            for one in (engine, other)
        ]
        assert answers[0].status_code == answers[1].status_code, path
        if path == "/v1/models" and with_key:
            ours = shape(answers[1].json())
            assert set(ours["data"][0]) == set(shape(answers[0].json())["data"][0])
    told = log.read({}, Path(other.current_start.log_path).read_text())
    truth = log.read({}, Path(engine.current_start.log_path).read_text())
    assert set(told) - {"done", "total", "weights_gib"} <= set(truth) | {"done", "total"}
    assert double.stop(other).state == "succeeded"


#: the playbook's command as a web page gives it, with line breaks as backslash-blank
REFERENCE = (
    "vllm serve Qwen/Qwen3-8B-Instruct --host 0.0.0.0 --port 8000 --tensor-parallel-size 1 \\ "
    "--max-model-len 32768 --gpu-memory-utilization 0.90 --enable-prefix-caching \\ "
    "--enable-chunked-prefill --max-num-batched-tokens 8192 --max-num-seqs 64 \\ "
    "--block-size 16 --swap-space 8 --served-model-name qwen3-8b --disable-log-requests"
)


@pytest.fixture
def long_tiny(tiny: Path, tmp_path: Path) -> Path:
    """The small model, with positions for the playbook's longest request."""
    folder = shutil.copytree(tiny, tmp_path / "long")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 40960}))
    return folder


def test_vllm_refuses_the_reference_command_and_takes_what_the_profile_makes_of_it(real, long_tiny):
    """Only the model is another one, and the CPU is told its cache's size and to compile nothing."""
    command = read_text(REFERENCE)
    assert command.spec.model == "Qwen/Qwen3-8B"
    flags = REFERENCE.replace("\\ ", "").split()[3:]
    refusal = subprocess.run(
        [str(real.executable), "serve", str(long_tiny), *flags], capture_output=True, text=True, timeout=300
    )
    assert refusal.returncode == 2
    assert "unrecognized arguments: --swap-space 8 --disable-log-requests" in refusal.stderr

    # what else a CPU does not take is said beforehand, with its mend
    verdict = judge(command.spec, Target("here", release_for("0.32.0+cpu")))
    (page,) = [note for note in verdict.notes if note.severity is Severity.ERROR]
    assert (page.code, dict(page.mends[0].sets)) == ("block_size_cpu", {"block_size": ""})
    values = {key: value for key, value in command.spec.values.items() if key != "block_size"}

    revision = RevisionFactory(
        model=str(long_tiny),
        served_names=list(command.spec.served_names),
        values=values,
        environment=ENVIRONMENT,
        extra_arguments="--enforce-eager",
    )
    engine = EngineFactory(
        host=real.host,
        revision=revision,
        environment=real.vllm,
        port=free_port(),
        bind_address="127.0.0.1",
        desired="running",
    )
    start(real, engine)
    started = engine.current_start.command
    assert not {"--swap-space", "--disable-log-requests"} & set(started)
    for flag, value in (
        ("--max-model-len", "32768"),
        ("--gpu-memory-utilization", "0.9"),
        ("--max-num-batched-tokens", "8192"),
        ("--max-num-seqs", "64"),
        ("--served-model-name", "qwen3-8b"),
    ):
        assert started[started.index(flag) + 1] == value
    told = httpx.get(
        f"http://127.0.0.1:{engine.port}/v1/models", headers={"Authorization": f"Bearer {engine.api_key}"}
    ).json()
    assert [(one["id"], one["max_model_len"]) for one in told["data"]] == [("qwen3-8b", 32768)]
