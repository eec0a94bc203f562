"""The help of an installed vLLM becomes a list of flags."""

from __future__ import annotations

import subprocess

import pytest

from engines.flag_lists import _HELP
from engines.vllm.help_text import NotHelp, read_help
from engines.vllm.releases import release
from tests.support import real_vllm

HELP = """usage: vllm serve [model_tag] [options]

positional arguments:
  model_tag             The model tag to serve (default: None)

options:
  -h, --help            show this help message and exit
  --api-server-count API_SERVER_COUNT, -asc API_SERVER_COUNT
                        How many API server processes to run. (default: None)
  --headless            Run in headless mode. (default: False)

ModelConfig:
  Configuration for the model.

  --max-model-len MAX_MODEL_LEN
                        Model context length. Parse human-readable integers like '1k', '2M', etc.
                            Examples:
                            - '1k' -> 1,000
                             (default: None)
  --served-model-name SERVED_MODEL_NAME [SERVED_MODEL_NAME ...]
                        The names. (default: None)
  --tensor-parallel-size TENSOR_PARALLEL_SIZE, -tp TENSOR_PARALLEL_SIZE
                        Number of tensor parallel groups. (default: 1)
  --brand-new-share BRAND_NEW_SHARE
                        Something (default: see below) of the card. (default: 0.5)
  --brand-new-config BRAND_NEW_CONFIG
                        Should either be a valid JSON string or JSON keys passed individually. (default: {})
  --mode {fast,none,None}
                        A mode. (default: fast)
  --enable-x, --no-enable-x, --disable-x
                        Switch. (default: True)
  --old-way OLD_WAY     --old-way is deprecated and will be removed in v0.40. (default: None)
  --hf-token [HF_TOKEN]
                        The token. (default: None)
"""


def test_it_reads_names_kinds_choices_and_defaults():
    flags = read_help(HELP)
    assert set(flags) == {
        "--api-server-count",
        "--headless",
        "--max-model-len",
        "--served-model-name",
        "--tensor-parallel-size",
        "--brand-new-share",
        "--brand-new-config",
        "--mode",
        "--enable-x",
        "--old-way",
        "--hf-token",
    }
    assert flags["--api-server-count"].aliases == ("-asc",)
    assert (flags["--headless"].kind, flags["--headless"].default) == ("bool", False)
    assert flags["--max-model-len"].kind == "int_human_or_auto"  # as in the releases that are known
    assert flags["--served-model-name"].kind == "list"
    assert (flags["--tensor-parallel-size"].kind, flags["--tensor-parallel-size"].default) == ("int", 1)
    assert (flags["--brand-new-share"].kind, flags["--brand-new-share"].default) == ("float", 0.5)
    assert (flags["--brand-new-config"].kind, flags["--brand-new-config"].default) == ("json", {})
    assert flags["--mode"].choices == ("fast", "none")
    assert flags["--enable-x"].negations == ("--no-enable-x", "--disable-x")
    assert [name for name, flag in flags.items() if flag.deprecated] == ["--old-way"]


@pytest.mark.parametrize(
    "text",
    ["", "usage: vllm [-h] {chat,serve}\n", "vllm: error: unrecognized arguments: --help=all\n", HELP[:400]],
)
def test_it_refuses_what_is_not_the_whole_help(text):
    with pytest.raises(NotHelp):
        read_help(text)


@pytest.mark.vllm
def test_the_help_of_a_real_vllm_says_what_the_catalogue_says():
    printed = subprocess.run(
        ["sh", "-c", _HELP, "sh", str(real_vllm.executable())],
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    ).stdout
    flags, known = read_help(printed), release(real_vllm.VERSION).flags
    assert set(flags) == set(known)
    switches = {name for name, flag in known.items() if not flag.takes_value} - {"--hf-token"}
    assert {name for name, flag in flags.items() if not flag.takes_value} == switches
    for name, flag in flags.items():
        # --hf-token takes a value or none, which the help cannot tell from one that it must have
        if name != "--hf-token":
            assert flag.negations == known[name].negations, name
        assert flag.aliases == known[name].aliases, name
    for name in ("--max-model-len", "--gpu-memory-utilization", "--kv-cache-dtype", "--max-num-seqs"):
        assert (flags[name].default, flags[name].kind) == (known[name].default, known[name].kind)
        assert sorted(flags[name].choices) == sorted(known[name].choices)
