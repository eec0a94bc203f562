from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from engines.launch.checks import Need, refused, run_checks
from engines.launch.preflight import PreflightIncomplete, hex_address, parse_preflight
from engines.launch.scripts import script
from engines.ssh.local import local_session

GPU = "gpu\t{index}, GPU-{index}, NVIDIA H200, 143771, {used}, {free}, 570.86.15"
FINE = [
    "disk\t900000000",
    "executable\tok",
    "version\t0.33.0",
    "model\tfolder",
    "address\t127.0.0.1",
    "address\t10.0.0.5",
    "bind\t10.0.0.5",
    "nvidia\tok",
    GPU.format(index=0, used=0, free=143000),
    GPU.format(index=1, used=0, free=143000),
]
NEED = Need(
    executable="/envs/a/bin/vllm",
    bind_address="10.0.0.5",
    port=8000,
    model="/models/qwen3-8b",
    version="0.33.0",
)


def check(*lines: str, need: Need = NEED, without: str = "") -> dict:
    kept = [line for line in FINE if not without or not line.startswith(without)]
    facts = parse_preflight("\n".join([*kept, *lines, "end"]) + "\n")
    return {one.code: one for one in run_checks(facts, need)}


def changed(**values) -> Need:
    return Need(**{**NEED.__dict__, **values})


def test_a_host_that_has_everything_passes():
    assert all(one.ok for one in check().values())


@pytest.mark.parametrize(
    ("lines", "without", "need", "code", "safe", "words"),
    [
        (["executable\tmissing"], "executable", {}, "environment_missing", False, "/envs/a/bin/vllm"),
        (["executable\tinterpreter\t/x/python"], "executable", {}, "environment_missing", False, "gone"),
        (["disk\t1000"], "disk", {}, "disk_full", True, "MiB"),
        (["disk\t0"], "disk", {}, "disk_full", False, "0 MiB"),
        (["model\tmissing"], "model", {}, "model_missing", False, "/models/qwen3-8b"),
        (["model\tabsent"], "model", {"offline": True, "model": "a/b"}, "model_absent", True, "a/b"),
        (["listen\t00000000"], "-", {}, "port_taken", False, "8000"),
        (["listen\t0500000A", "owner\t77\tnginx\t."], "-", {}, "port_taken", False, "nginx (process 77)"),
        (["bind\t203.0.113.9"], "bind", {"bind_address": "203.0.113.9"}, "bind_address_missing", True, "203"),
        (["nvidia\tabsent"], "nvidia", {}, "gpu_missing", True, "nvidia-smi"),
        (["nvidia\terror\tmismatch"], "nvidia", {}, "driver", True, "mismatch"),
        ([], "-", {"gpus": ["7"]}, "gpu_unknown", False, "GPU 7"),
        ([], "-", {"cards": 4}, "gpu_too_few", False, "4 GPUs, and 2"),
        (["app\tGPU-0\t91\t/usr/bin/python\t900\teve.\t."], "-", {}, "gpu_busy", True, "user eve"),
        ([GPU.format(index=0, used=100000, free=43000)], "gpu\t0", {}, "gpu_memory_short", True, "42.0 GiB"),
    ],
)
def test_what_is_wrong_is_a_sentence_with_a_remedy(lines, without, need, code, safe, words):
    checks = check(*lines, need=changed(**need), without=without)
    found = checks[code]
    assert not found.ok
    assert words in found.text
    assert found.remedy
    assert found.safe is safe
    assert (refused(checks.values(), []) or found).code == code
    assert (refused(checks.values(), [code]) is None) is safe


def test_a_model_that_will_be_downloaded_is_said_to_be():
    assert "will download" in check("model\tabsent", without="model")["model"].text


def test_processes_of_our_engines_and_on_other_gpus_are_nobodys_business():
    ours = "app\tGPU-0\t91\tVLLM::Worker\t900\tops.\taaaa-bbbb."
    other = "app\tGPU-1\t92\tpython\t900\teve.\t."
    assert "gpu_busy" not in check(ours, other, need=changed(gpus=["0"]))


def test_a_port_on_another_address_is_free():
    assert check("listen\t0100007F")["port"].ok


def test_a_cpu_build_needs_no_gpu():
    checks = check("version\t0.32.0+cpu", "nvidia\tabsent", without="nvidia")
    assert checks["gpu"].ok


def test_a_fixed_cache_needs_no_share_of_memory():
    full = GPU.format(index=0, used=100000, free=43000)
    assert "gpu_memory_short" not in check(full, without="gpu\t0", need=changed(utilization=None))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0100007F", "127.0.0.1"),
        ("00000000", "0.0.0.0"),
        ("00000000000000000000000001000000", "::1"),
        ("0000000000000000FFFF00000100007F", "127.0.0.1"),
    ],
)
def test_the_kernels_addresses_are_read(text, address):
    assert hex_address(text) == address


def test_an_answer_that_was_cut_is_refused():
    with pytest.raises(PreflightIncomplete):
        parse_preflight("disk\t5\nexecutable\tok\n")


def ask(executable: Path, port: int, model: str, *, hub: str = ""):
    result = local_session().run(
        script("preflight"), args=[str(executable), "127.0.0.1", str(port), model, "", hub, "", "/tmp"]
    )
    return parse_preflight(result.stdout)


def test_the_script_tells_who_has_the_port_and_whether_the_model_is_cached(tmp_path):
    snapshot = tmp_path / "hub" / "models--Qwen--Qwen3-8B" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        facts = ask(tmp_path / "none", server.getsockname()[1], "Qwen/Qwen3-8B", hub=str(tmp_path / "hub"))
    assert facts.listening == ["127.0.0.1"]
    assert facts.owner is not None
    assert facts.owner[0] == os.getpid()
    assert facts.executable == "missing"
    assert facts.model == "cached"
    assert facts.port_taken("127.0.0.1")
    assert ask(tmp_path / "none", 1, "Qwen/Other", hub=str(tmp_path / "hub")).model == "absent"


def test_the_script_reads_nvidia_smi_and_knows_our_processes(tmp_path, monkeypatch):
    tools = tmp_path / "tools"
    tools.mkdir()
    smi = tools / "nvidia-smi"
    smi.write_text(
        f"""#!/bin/sh
case $1 in
  --query-gpu=*) echo "0, GPU-aaa, NVIDIA H200, 143771, 900, 142871, 570.86.15"
                 echo "1, GPU-bbb, NVIDIA H200, [N/A], [N/A], [N/A], 570.86.15" ;;
  *) echo "GPU-aaa, {os.getpid()}, python, 900" ; echo "[Insufficient Permissions]" ;;
esac
"""
    )
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    facts = ask(tmp_path / "none", 1, "/nowhere")
    assert [gpu.index for gpu in facts.gpus] == ["0", "1"]
    assert facts.gpus[1].free is None
    (process,) = facts.processes
    assert (process.pid, process.uuid, process.marker) == (os.getpid(), "GPU-aaa", "")
    assert process.user
    assert facts.model == "missing"
