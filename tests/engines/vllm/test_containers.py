"""Commands in containers become profiles: docker run, compose files, manifests, lists, files of flags."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.vllm.reading import read_text
from engines.vllm.spec import ServeSpec

SERVER = "vllm.entrypoints.openai.api_server"
VALUES = {"max_model_len": 32768, "tensor_parallel_size": 2}

DOCKER = """docker run --runtime nvidia --gpus '"device=0,1"' \\
    -v ~/.cache/huggingface:/root/.cache/huggingface \\
    --env "HUGGING_FACE_HUB_TOKEN=hf_abc" -e VLLM_LOGGING_LEVEL=DEBUG -eHF_HUB_OFFLINE=1 \\
    -p 8000:8000 --ipc=host -it --rm \\
    vllm/vllm-openai:v0.10.2 \\
    --model Qwen/Qwen3-8B --max-model-len 32768 -tp 2"""

COMPOSE = """services:
  vllm:
    image: docker.io/vllm/vllm-openai:v0.10.2
    command: --model Qwen/Qwen3-8B --max-model-len 32768 --tensor-parallel-size 2
    environment:
      - HUGGING_FACE_HUB_TOKEN
      - VLLM_LOGGING_LEVEL=DEBUG
    ports: ["8000:8000"]
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              device_ids: ["0", "1"]
  web:
    image: nginx
"""

KUBERNETES = """apiVersion: v1
kind: Service
metadata: {name: x}
---
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
        - name: side
          image: busybox
          args: ["x"]
        - name: real
          image: vllm/vllm-openai:latest
          command: ["/bin/sh", "-c"]
          args: ["exec vllm serve Qwen/Qwen3-8B --max-model-len 32768 -tp 2"]
          volumeMounts: []
          env:
            - name: VLLM_LOGGING_LEVEL
              value: DEBUG
            - name: HF_TOKEN
              valueFrom: {secretKeyRef: {name: hf, key: token}}
"""

LIST = """args:
  - --model=Qwen/Qwen3-8B
  - --max-model-len
  - 32768
  - "--tensor-parallel-size 2"
"""


def test_a_docker_line_with_its_options():
    command = read_text(DOCKER)
    assert command.spec == ServeSpec(
        "Qwen/Qwen3-8B",
        values=VALUES,
        gpus="0,1",
        environment={"VLLM_LOGGING_LEVEL": "DEBUG", "HF_HUB_OFFLINE": "1"},
        secrets={"HUGGING_FACE_HUB_TOKEN": "hf_abc"},
    )
    said = {note.code: note.text() for note in command.notes}
    assert "0.10.2" in said["image_version"]
    assert "-p 8000:8000" in said["container_left_out"]
    assert "huggingface:/root" in said["container_left_out"]
    assert "hf_abc" not in " ".join(said.values())


@pytest.mark.parametrize("runner", ["podman", "sudo docker", "/usr/bin/docker container", "nerdctl"])
def test_other_runners(runner):
    command = read_text(f"{runner} run --gpus=all vllm/vllm-openai vllm serve Qwen/Qwen3-8B --max-num-seqs 4")
    assert command.understood
    assert (command.spec.model, command.spec.values) == ("Qwen/Qwen3-8B", {"max_num_seqs": 4})
    assert command.spec.gpus == ""


def test_a_docker_line_of_something_else_is_not_understood():
    assert not read_text("docker run -p 80:80 nginx").understood


def test_a_compose_file():
    command = read_text(COMPOSE)
    assert command.spec == ServeSpec(
        "Qwen/Qwen3-8B",
        values=VALUES,
        gpus="0,1",
        environment={"VLLM_LOGGING_LEVEL": "DEBUG"},
        secrets={"HUGGING_FACE_HUB_TOKEN": ""},
    )
    said = {note.code: note.text() for note in command.notes}
    assert "ports" in said["container_left_out"]


def test_a_manifest():
    command = read_text(KUBERNETES)
    assert command.spec == ServeSpec(
        "Qwen/Qwen3-8B",
        values=VALUES,
        environment={"VLLM_LOGGING_LEVEL": "DEBUG"},
        secrets={"HF_TOKEN": ""},
    )


@pytest.mark.parametrize(
    "text",
    [
        LIST,
        LIST.removeprefix("args:\n"),
        '["--model", "Qwen/Qwen3-8B", "--max-model-len", "32768", "-tp", "2"]',
        "# from the wiki\nmodel: Qwen/Qwen3-8B\nmax-model-len: 32768\ntensor_parallel_size: 2\n",
        f"command: [python3, -m, {SERVER}, --model=Qwen/Qwen3-8B, --max-model-len=32768, -tp=2]\n",
        f"docker run vllm/vllm-openai python3 -m {SERVER} --model Qwen/Qwen3-8B --max-model-len 32768 -tp 2",
        "command: >\n  vllm serve Qwen/Qwen3-8B\n  --max-model-len 32768\n  -tp 2\n",
    ],
)
def test_lists_and_files_of_flags(text):
    command = read_text(text)
    assert command.understood, [note.text() for note in command.notes]
    assert command.spec == ServeSpec("Qwen/Qwen3-8B", values=VALUES)


def test_blanks_of_a_web_page_are_mended_and_said():
    command = read_text(LIST.replace(" ", "\u00a0"))
    assert command.spec == ServeSpec("Qwen/Qwen3-8B", values=VALUES)
    assert "blanks_mended" in {note.code for note in command.notes}


def test_a_switch_in_a_file_of_flags():
    command = read_text("model: m\nenable-prefix-caching: false\ntrust-remote-code: true\nswap-space: 4\n")
    assert command.spec.values == {
        "enable_prefix_caching": False,
        "trust_remote_code": True,
        "swap_space": 4.0,
    }


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("services:\n  web:\n    image: nginx\n", "no_container"),
        ("services:\n  web: [\n", "not_yaml"),
        ("a: b: c\n", "not_yaml"),
        ("- [" * 2000, "not_yaml"),
        ("x: 2026-99-99\n", "not_yaml_text"),
        ("x: " + "y" * 1_000_001, "yaml_large"),
    ],
)
def test_what_is_no_container_gets_a_sentence(text, code):
    command = read_text(text)
    assert not command.understood
    assert [note.code for note in command.notes] == [code]


def test_aliases_that_blow_up_do_no_harm():
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert not read_text(bomb).understood


@given(st.text(alphabet="-:[]{}&*!|>'\"%@`#\n\t abc0=", max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_gets_an_answer(text):
    read_text(text)
