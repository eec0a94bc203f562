"""The other scripts, run for real in a made-up home folder on this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engines.probe import records, scripts
from engines.ssh.local import local_session


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "home of ops"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    return folder


def run(script: str, *args: str) -> str:
    result = local_session().run(script, args=args, timeout_s=100)
    assert (result.status, result.stderr) == (0, "")
    return result.stdout


def environment(folder: Path, version: str, *, command: bool = True, package: bool = True) -> None:
    packages = folder / "lib" / "python3.11" / "site-packages"
    info = packages / f"vllm-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: vllm\nVersion: {version}\n\nVersion: no\n")
    if package:
        (packages / "vllm").mkdir()
    if command:
        (folder / "bin").mkdir()
        (folder / "bin" / "vllm").write_text("#!/bin/sh\n")
        (folder / "bin" / "vllm").chmod(0o755)


def test_it_reads_the_system(home):
    facts = records.parse_system(run(scripts.SYSTEM, "~/.kvadmin/not yet", "/"))
    assert (
        facts["os"]["kernel"]
        == subprocess.run(["uname", "-r"], capture_output=True, text=True).stdout.strip()
    )
    assert facts["os"]["name"]
    assert facts["cpu"]["cores"] >= 1
    assert facts["memory"]["total_bytes"] > facts["memory"]["available_bytes"] > 10**6
    assert [disk["path"] for disk in facts["disk"]] == [f"{home}/.kvadmin/not yet", "/", str(home)]
    assert facts["disk"][0]["total_bytes"] == shutil.disk_usage(home).total
    assert (facts["systemd_user"], facts["linger"]) in {
        (True, True),
        (True, False),
        (False, False),
        (False, True),
    }


def test_it_tells_who_and_which_boot(home):
    contact = records.parse_contact(run(scripts.CONNECT))
    assert contact.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert contact.home == str(home)
    assert contact.is_root == (contact.user == "root")


def test_it_finds_pythons_newest_first(home):
    (home / ".pyenv" / "versions" / "x" / "bin").mkdir(parents=True)
    (home / ".pyenv" / "versions" / "x" / "bin" / "python3").symlink_to(sys.executable)
    (home / ".pyenv" / "versions" / "broken" / "bin").mkdir(parents=True)
    broken = home / ".pyenv" / "versions" / "broken" / "bin" / "python3"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    found = records.parse_pythons(run(scripts.PYTHONS))
    versions = [tuple(map(int, one["version"].split("."))) for one in found]
    assert versions == sorted(versions, reverse=True)
    assert sys.version_info[:3] in versions
    assert not any("broken" in one["path"] for one in found)


def test_pythons_too_old_for_any_vllm_are_left_out():
    text = "python\t/a\t3.8.18\tyes\npython\t/b\t3.14.0\tno\npython\t/c\t3.9.1\tyes\npython\t/d\t2.7\tyes\n"
    assert [one["version"] for one in records.parse_pythons(text)] == ["3.14.0", "3.9.1"]


def test_it_finds_environments_by_their_metadata(home):
    environment(home / ".kvadmin" / "envs" / "vllm-0.32.0", "0.32.0")
    (home / ".kvadmin" / "envs" / "vllm-0.32.0" / "pyvenv.cfg").write_text("home = /usr\nversion = 3.11.7\n")
    environment(home / "miniconda3" / "envs" / "llm", "0.25.1+cu129", command=False)
    environment(home / "project" / ".venv", "0.8.4", package=False)
    (home / "venv-empty" / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (home / "vllm-link").symlink_to(home / "project" / ".venv")
    found = records.parse_environments(run(scripts.ENVIRONMENTS, "~/.kvadmin"))
    mine = {
        one.path.removeprefix(f"{home}/"): one for one in found.environments if one.path.startswith(str(home))
    }
    assert found.work_dir == f"{home}/.kvadmin"
    made = mine[".kvadmin/envs/vllm-0.32.0"]
    assert (made.version, made.python_version, made.complete) == ("0.32.0", "3.11.7", True)
    assert made.executable == f"{made.path}/bin/vllm"
    conda = mine["miniconda3/envs/llm"]
    assert (conda.version, conda.python_version, conda.executable) == ("0.25.1+cu129", "3.11", "")
    assert mine["vllm-link"].complete is False
    assert "project/.venv" not in mine
    assert len(mine) == 3


def test_it_finds_an_environment_by_the_path(home, tmp_path, monkeypatch):
    environment(tmp_path / "elsewhere", "0.30.1")
    monkeypatch.setenv("PATH", f"{tmp_path}/elsewhere/bin:/usr/bin:/bin")
    found = records.parse_environments(run(scripts.ENVIRONMENTS, "~/.kvadmin"))
    assert f"{tmp_path}/elsewhere" in [one.path for one in found.environments]


def test_it_finds_models_of_the_cache_and_of_folders(home):
    cache = home / ".cache" / "huggingface" / "hub"
    for revision in ("aaa", "bbb"):
        snapshot = cache / "models--Qwen--Qwen3-8B" / "snapshots" / revision
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").write_text("{}")
    (cache / "models--Qwen--Qwen3-8B" / "refs").mkdir()
    (cache / "models--Qwen--Qwen3-8B" / "refs" / "main").write_text("aaa")
    (cache / "models--Qwen--Qwen3-8B" / "blobs").mkdir()
    (cache / "models--Qwen--Qwen3-8B" / "blobs" / "x").write_bytes(b"x" * 3_000_000)
    (cache / "models--half--done" / "snapshots" / "c").mkdir(parents=True)
    (cache / "models--half--done" / "snapshots" / "c" / "config.json").write_text("{}")
    (cache / "models--half--done" / "blobs").mkdir()
    (cache / "models--half--done" / "blobs" / "y.incomplete").write_text("")
    (cache / "models--empty--one" / "snapshots").mkdir(parents=True)
    models = home / "my models"
    for name in ("glm", "glm/text_encoder", "deep/er/qwen"):
        (models / name).mkdir(parents=True, exist_ok=True)
        (models / name / "config.json").write_text("{}")
    found, missing = records.parse_models(run(scripts.MODELS, "~/my models", "/not/there"))
    assert missing == ["/not/there"]
    by_name = {one["name"]: one for one in found}
    assert set(by_name) == {"Qwen/Qwen3-8B", "half/done", "glm", "qwen"}
    assert by_name["Qwen/Qwen3-8B"]["path"].endswith("snapshots/aaa")
    assert by_name["Qwen/Qwen3-8B"]["bytes"] >= 3_000_000
    assert (by_name["Qwen/Qwen3-8B"]["kind"], by_name["glm"]["kind"]) == ("hf-cache", "folder")
    assert (by_name["half/done"]["partial"], by_name["glm"]["partial"]) == (True, False)


def test_a_model_folder_may_itself_be_the_model(home):
    (home / "m").mkdir()
    (home / "m" / "config.json").write_text("{}")
    found, _missing = records.parse_models(run(scripts.MODELS, "~/m"))
    assert [(one["name"], one["path"]) for one in found] == [("m", f"{home}/m")]


SHELLS = [
    command
    for command in (["/bin/sh"], ["/bin/bash", "--posix"], ["/usr/bin/busybox", "sh"])
    if Path(command[0]).exists()
]


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@pytest.mark.parametrize(
    "name", ["CONNECT", "SYSTEM", "GPUS", "SAMPLE", "PYTHONS", "ENVIRONMENTS", "MODELS", "CONFIGS"]
)
def test_every_script_is_plain_sh(shell, name):
    script = getattr(scripts, name)
    done = subprocess.run([*shell, "-n"], input=script, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
