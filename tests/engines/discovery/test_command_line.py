import pytest

from engines.discovery.command_line import mask, serve_command


@pytest.mark.parametrize(
    ("line", "model", "names", "port", "environment"),
    [
        ("/opt/vllm/bin/vllm serve Qwen/Qwen3-8B", "Qwen/Qwen3-8B", [], 8000, "/opt/vllm"),
        (
            "/opt/vllm/bin/python3 /opt/vllm/bin/vllm serve /m/q --port 8001 --served-model-name a b -O3",
            "/m/q", ["a", "b"], 8001, "/opt/vllm",
        ),
        (
            "python -u -X dev -m vllm.entrypoints.openai.api_server --model=Qwen/Qwen3-8B --port=9000",
            "Qwen/Qwen3-8B", [], 9000, "",
        ),
        (
            "/usr/bin/python3.12 -m vllm.entrypoints.cli.main serve q --host 0.0.0.0",
            "q", [], 8000, "/usr",
        ),
        ("vllm serve --model q --served_model_name qq", "q", ["qq"], 8000, ""),
    ],
)  # fmt: skip
def test_it_reads_a_servers_command_line(line, model, names, port, environment):
    command = serve_command(line.split())
    assert (command.model, command.served_names, command.port, command.environment) == (
        model,
        names,
        port,
        environment,
    )


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["vim", "vllm"],
        ["/opt/vllm/bin/vllm", "bench", "serve"],
        ["grep", "-r", "vllm serve", "."],
        ["sh", "-c", "vllm serve Qwen/Qwen3-8B"],
        ["python3", "train.py", "--out", "vllm"],
        ["python3", "-c", "import vllm"],
        ["VLLM::EngineCore"],
        ["VLLM::Worker_TP0"],
        ["tail", "-f", "/var/log/vllm.log"],
    ],
)
def test_it_leaves_everything_else_alone(argv):
    assert serve_command(argv) is None


def test_a_title_instead_of_a_command_line():
    command = serve_command(["VLLM::APIServer_0   "])
    assert command.retitled
    assert (command.argv, command.model) == (["VLLM::APIServer_0"], "")


def test_secrets_are_masked():
    argv = "vllm serve q --api-key sk-1 sk-2 --hf-token=hf_abc --ssl-keyfile /k.pem --tokenizer t --port 1"
    shown = mask(argv.split())
    assert " ".join(shown) == (
        "vllm serve q --api-key **** **** --hf-token=**** --ssl-keyfile /k.pem --tokenizer t --port 1"
    )
    assert "sk-1" not in str(serve_command(argv.split()))
