"""Other proxies in front of the same engine, for comparison.

nginx is the machine's own (Debian: nginx-light). vllm-router and LiteLLM are installed from PyPI by
``python -m bench.gateway --install``, each into an environment of its own under var/bench-peers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.load import request
from kvadmin.env import BASE_DIR
from tests.support.up import free_ports

PEERS = BASE_DIR / "var" / "bench-peers"
#: distribution of each peer, pinned so that figures of two days compare
PACKAGES = {"vllm-router": "vllm-router==0.1.17", "litellm": "litellm[proxy]==1.108.7"}
START_S = 180
KEY = "sk-bench-0123456789abcdef"


@dataclass
class Peer:
    name: str
    port: int
    pid: int
    #: what callers send
    key: str = KEY


def install() -> None:
    """Make the environments that are missing."""
    for name, package in PACKAGES.items():
        if not (PEERS / name / "bin" / name).exists():
            print(f"Installing {package} into {PEERS / name}", flush=True)
            subprocess.run([sys.executable, "-m", "venv", PEERS / name], check=True)
            subprocess.run([PEERS / name / "bin" / "pip", "install", "--quiet", package], check=True)


def missing(name: str) -> str:
    """Why a peer cannot run here; "" if it can."""
    if name == "nginx":
        return "" if shutil.which("nginx") else "nginx is not installed (Debian: nginx-light): left out"
    if (PEERS / name / "bin" / name).exists():
        return ""
    return f"{name} is not installed (python -m bench.gateway --install): left out"


@contextmanager
def nginx(engine: int, model: str, folder: Path) -> Iterator[Peer]:
    """One worker, kept connections, no buffering, an access log: as one would set it up before an engine."""
    (port,) = free_ports(1)
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"""
        {user}
        daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
        worker_rlimit_nofile 20000;
        events {{ worker_connections 10000; }}
        http {{
            access_log {folder}/nginx-access.log combined buffer=64k flush=1s;
            client_body_temp_path {folder}/nginx-body; proxy_temp_path {folder}/nginx-proxy;
            fastcgi_temp_path {folder}/nginx-a; uwsgi_temp_path {folder}/nginx-b;
            scgi_temp_path {folder}/nginx-c;
            keepalive_requests 1000000000;
            upstream engine {{
                server 127.0.0.1:{engine}; keepalive 1024; keepalive_requests 1000000000;
            }}
            server {{
                listen 127.0.0.1:{port} backlog=4096;
                location / {{
                    proxy_pass http://engine; proxy_http_version 1.1;
                    proxy_set_header Connection ""; proxy_buffering off;
                }}
            }}
        }}
        """
    )
    with _running([str(shutil.which("nginx")), "-c", f"{folder}/nginx.conf"], folder, "nginx") as process:
        yield _ready(Peer("nginx", port, process.pid), process, model, folder)


@contextmanager
def vllm_router(engine: int, model: str, folder: Path) -> Iterator[Peer]:
    port, prometheus = free_ports(2)
    command = [
        *(str(PEERS / "vllm-router" / "bin" / "vllm-router"), "--host", "127.0.0.1", "--port", str(port)),
        *("--worker-urls", f"http://127.0.0.1:{engine}", "--policy", "round_robin"),
        *("--prometheus-port", str(prometheus), "--log-level", "warning"),
    ]
    with _running(command, folder, "vllm-router") as process:
        yield _ready(Peer("vllm-router", port, process.pid), process, model, folder)


@contextmanager
def litellm(engine: int, model: str, folder: Path) -> Iterator[Peer]:
    (port,) = free_ports(1)
    (folder / "litellm.yaml").write_text(
        f"""
model_list:
  - model_name: {model}
    litellm_params:
      model: openai/{model}
      api_base: http://127.0.0.1:{engine}/v1
      api_key: none
general_settings:
  master_key: {KEY}
"""
    )
    command = [
        *(str(PEERS / "litellm" / "bin" / "litellm"), "--config", str(folder / "litellm.yaml")),
        *("--host", "127.0.0.1", "--port", str(port), "--num_workers", "1", "--telemetry", "False"),
    ]
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    with _running(command, folder, "litellm", **quiet) as process:
        yield _ready(Peer("litellm", port, process.pid), process, model, folder)


MAKERS: dict[str, Callable[..., object]] = {"nginx": nginx, "vllm-router": vllm_router, "litellm": litellm}


@contextmanager
def _running(
    command: list[str], folder: Path, name: str, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    inherited = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("KVADMIN_", "DJANGO_")) and key not in {"DATABASE_URL", "VALKEY_URL"}
    }
    with (folder / f"{name}.out").open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**inherited, **environment},
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(peer: Peer, process: subprocess.Popen[bytes], model: str, folder: Path) -> Peer:
    """Once it has carried a request."""
    body = request(model, peer.key).partition(b"\r\n\r\n")[2]
    headers = {"content-type": "application/json", "authorization": f"Bearer {peer.key}"}
    asked = urllib.request.Request(f"http://127.0.0.1:{peer.port}/v1/chat/completions", body, headers)
    limit = time.monotonic() + START_S
    while True:
        said = ""
        try:
            with urllib.request.urlopen(asked, timeout=20) as answer:
                answer.read()
                return peer
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")
        except OSError as error:
            said = str(error)
        if process.poll() is not None or time.monotonic() > limit:
            output = (folder / f"{peer.name}.out").read_text(errors="replace")[-2000:]
            raise SystemExit(f"{peer.name} did not begin: {said}\n{output}")
        time.sleep(0.3)
