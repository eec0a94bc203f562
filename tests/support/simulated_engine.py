"""A small double of ``vllm serve`` as it is seen from outside: arguments, environment, log, processes, HTTP.

``install(folder)`` puts it there as an executable named vllm, so that the flows run it unchanged. It is
told how to behave by environment variables, which a profile's environment sets:

SIM_READY_AFTER  seconds until it is ready (0.3)
SIM_FAIL         oom | kv | exit | hang | crash: what goes wrong while loading
SIM_LEAVE        1: its children outlive it
SIM_STUBBORN     1: it and its children ignore SIGTERM
SIM_METRICS      path of a /metrics page to serve

``POST /_sim`` with {"health": 503, "running": 3, "waiting": 1} changes it while it runs. Its endpoints
and log lines are compared with the real vLLM in tests/engines/test_real_vllm.py.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

VERSION = "0.32.0"
#: seconds after which it ends by itself, in case the tests that started it were killed
LIFE_S = 900
GONE_FLAGS = {"--swap-space", "--disable-log-requests", "--swap-spaces"}
METRICS = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="%(model)s"} 0.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="%(model)s"} 0.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="%(model)s"} 0.25
"""


def install(folder: Path) -> Path:
    """Make ``folder/bin/vllm``; its path."""
    path = folder / "bin" / "vllm"
    path.parent.mkdir(parents=True, exist_ok=True)
    # the system's Python, where there is one, can be run by every user
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    path.write_text(f"#!{python}\n{Path(__file__).read_text()}")
    path.chmod(0o755)
    return path


def log(name: str, text: str, *, level: str = "INFO") -> None:
    stamp = time.strftime("%m-%d %H:%M:%S")
    print(f"({name} pid={os.getpid()}) {level} {stamp} [sim.py:1] {text}", flush=True)


def retitle(name: str) -> None:
    """As setproctitle does: a new name, and an environment that /proc no longer shows unless SPT_NOENV."""
    Path("/proc/self/comm").write_text(name)


class State:
    def __init__(self, names: list[str], key: str, max_model_len: int):
        self.names, self.key, self.max_model_len = names, key, max_model_len
        self.health, self.running, self.waiting = 200, 0, 0


def metrics_text(state: State) -> str:
    page = os.environ.get("SIM_METRICS")
    text = Path(page).read_text() if page else METRICS % {"model": state.names[0]}
    for name, value in (("running", state.running), ("waiting", state.waiting)):
        text = re.sub(rf"(?m)^(vllm:num_requests_{name}\{{[^}}]*\}}) \S+$", rf"\1 {float(value)}", text)
    return text


class Handler(BaseHTTPRequestHandler):
    state: State
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        print(
            f'INFO:     {self.client_address[0]}:{self.client_address[1]} - "{self.requestline}"', flush=True
        )

    def answer(self, status: int, body: object = None, kind: str = "application/json") -> None:
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def allowed(self) -> bool:
        if not self.path.startswith("/v1") or not self.state.key:
            return True
        if self.headers.get("Authorization") == f"Bearer {self.state.key}":
            return True
        self.answer(401, {"error": "Unauthorized"})
        return False

    def do_GET(self) -> None:
        if not self.allowed():
            return
        if self.path == "/health":
            self.answer(self.state.health)
        elif self.path == "/version":
            self.answer(200, {"version": VERSION})
        elif self.path == "/metrics":
            self.answer(200, metrics_text(self.state).encode(), "text/plain; version=0.0.4")
        elif self.path == "/v1/models":
            self.answer(
                200,
                {
                    "object": "list",
                    "data": [
                        {
                            "id": name,
                            "object": "model",
                            "created": int(time.time()),
                            "owned_by": "vllm",
                            "root": name,
                            "parent": None,
                            "max_model_len": self.state.max_model_len,
                            "permission": [],
                        }
                        for name in self.state.names
                    ],
                },
            )
        else:
            self.answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self.allowed():
            return
        try:
            asked = json.loads(body or b"{}")
        except ValueError:
            self.answer(400, {"error": {"message": "bad JSON", "type": "Bad Request", "code": 400}})
            return
        if self.path == "/_sim":
            for name, value in asked.items():
                setattr(self.state, name, value)
            self.answer(200, {})
        elif self.path in {"/v1/chat/completions", "/invocations"}:
            if asked.get("model") not in self.state.names:
                message = f"The model `{asked.get('model')}` does not exist."
                self.answer(404, {"error": {"message": message, "type": "NotFoundError", "code": 404}})
                return
            self.answer(
                200,
                {
                    "id": "chatcmpl-1",
                    "object": "chat.completion",
                    "created": int(time.time()),
                    "model": asked["model"],
                    "choices": [
                        {
                            "index": 0,
                            "message": {"role": "assistant", "content": "hello"},
                            "finish_reason": "stop",
                        }
                    ],
                    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
                },
            )
        elif self.path == "/tokenize":
            self.answer(200, {"count": 1, "max_model_len": self.state.max_model_len, "tokens": [1]})
        else:
            self.answer(404, {"detail": "Not Found"})


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="vllm")
    parser.add_argument("command")
    parser.add_argument("model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--served-model-name", nargs="+", default=[])
    parser.add_argument("--max-model-len", type=int, default=4096)
    found, rest = parser.parse_known_args()
    unknown = [word for word in rest if word in GONE_FLAGS]
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return found


def child(name: str) -> None:
    """EngineCore, which starts a Worker; both stay until they are told to go."""
    if os.environ.get("SIM_STUBBORN"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    retitle(f"VLLM::{name}")
    up = int(sys.argv[3])
    if name == "EngineCore":
        spawn("Worker", up)
    os.write(up, b".")
    time.sleep(LIFE_S)


def spawn(name: str, up: int) -> subprocess.Popen[bytes]:
    """A child process, which writes a byte to the descriptor ``up`` once it is there."""
    environment = dict(os.environ)
    if "SPT_NOENV" not in environment:
        environment = {key: value for key, value in environment.items() if key.startswith("SIM_")}
    words = [sys.executable, sys.argv[0], "--sim-child", name, str(up)]
    return subprocess.Popen(words, env=environment, pass_fds=[up])


def fail(kind: str) -> None:
    """Print what vLLM prints for this, and end as it does."""
    if kind == "oom":
        log("EngineCore", "EngineCore failed to start.", level="ERROR")
        log("EngineCore", "Traceback (most recent call last):", level="ERROR")
        log(
            "EngineCore",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
            "capacity of 79.10 GiB of which 1.05 GiB is free.",
            level="ERROR",
        )
        print(
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
        )
        sys.exit(1)
    if kind == "kv":
        log(
            "EngineCore",
            "ValueError: To serve at least one request with the model's max seq len (32768), (4.5 GiB KV "
            "cache is needed, which is larger than the available KV cache memory (3.24 GiB).",
            level="ERROR",
        )
        sys.exit(1)
    if kind == "exit":
        sys.exit(3)
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "hang":
        time.sleep(LIFE_S)


def serve() -> None:
    asked = arguments()
    names = asked.served_model_name or [asked.model]
    log("APIServer", f"       version {VERSION}")
    log("APIServer", f"non-default args: {{'model_tag': '{asked.model}', 'port': {asked.port}}}")
    state = State(names, os.environ.get("VLLM_API_KEY", ""), asked.max_model_len)
    Handler.state = state
    # vLLM binds before it loads; nobody is answered until it has
    server = ThreadingHTTPServer((asked.host, asked.port), Handler, bind_and_activate=False)
    server.daemon_threads = True
    try:
        server.server_bind()
    except OSError as error:
        print(f"OSError: [Errno {error.errno}] {error.strerror}", flush=True)
        sys.exit(1)
    log("APIServer", "Resolved architecture: Qwen3ForCausalLM")
    log("APIServer", f"Using max model len {asked.max_model_len}")
    down, up = os.pipe()
    core = spawn("EngineCore", up)
    for _process in ("EngineCore", "Worker"):
        os.read(down, 1)

    def leave(_number: int, _frame: object) -> None:
        if os.environ.get("SIM_STUBBORN"):
            return
        log("APIServer", "[shutdown] API server: shutdown triggered")
        if not os.environ.get("SIM_LEAVE"):
            subprocess.run(["pkill", "-TERM", "-P", str(core.pid)], check=False)
            core.terminate()
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
    log("EngineCore", f"Initializing a V1 LLM engine (v{VERSION}) with config: model='{asked.model}'")
    log("Worker", f"Starting to load model {asked.model}...")
    wait = float(os.environ.get("SIM_READY_AFTER", "0.3"))
    for done in range(5):
        print(
            f"Loading safetensors checkpoint shards: {done * 25:3d}% Completed | {done}/4 [00:00<00:00]",
            end="\r" if done < 4 else "\n",
            flush=True,
        )
        time.sleep(wait / 5)
        if done == 2 and os.environ.get("SIM_FAIL"):
            fail(os.environ["SIM_FAIL"])
    log("Worker", "Model loading took 15.27 GiB and 1.72 seconds")
    log(
        "EngineCore",
        "GPU KV cache size: 794,016 tokens, Maximum concurrency for 4,096 tokens per request: 193.85x",
    )
    log("EngineCore", "init engine (profile, create kv cache, warmup model) took 2.46 s")
    log("APIServer", f"Starting vLLM server on http://{asked.host}:{asked.port}")
    server.server_activate()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("INFO:     Application startup complete.", flush=True)
    time.sleep(LIFE_S)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--sim-child"]:
        child(sys.argv[2])
    else:
        serve()
