"""From what the scan printed to the vLLM servers on a host."""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any

from engines.discovery.command_line import ServeCommand, serve_command

_STAT = re.compile(r"^(\d+) \((.*)\) \S (\d+) (.*)$", re.S)
ANY_ADDRESS = {"0.0.0.0", "::"}  # noqa: S104


@dataclass(frozen=True)
class Listening:
    address: str
    port: int
    uid: str
    inode: str


@dataclass(frozen=True)
class Process:
    """One line of /proc/<pid>/stat: what is needed to know it again."""

    pid: int
    parent: int
    ticks: int
    name: str


@dataclass(frozen=True)
class Server:
    """A vLLM server that runs on the host; JSON by ``as_dict``. ``port`` is None where it cannot be told.

    ``notes`` are codes: unreadable (another user's process), container, retitled, no_port. ``answers``
    is filled by asking: {"health", "models"} statuses, "version", "served_names", "max_model_len".
    """

    pid: int
    ticks: int
    owner: str
    argv: list[str]
    model: str
    served_names: list[str]
    address: str
    port: int | None
    environment: str
    log_path: str
    log_readable: bool
    marker: str
    started_before_s: float
    processes: list[dict[str, Any]]
    notes: list[str]
    answers: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Scan:
    """``unreadable``: vLLM processes of other users of which only the command line could be read."""

    boot_id: str
    hidden: bool
    servers: list[Server]
    unreadable: int


def parse_scan(stdout: str) -> Scan:
    """Read the scan's output. A server started through several processes is listed once."""
    host: dict[str, str] = {}
    sockets: list[Listening] = []
    processes: dict[int, Process] = {}
    blocks: list[dict[str, list[str]]] = []
    for line in stdout.splitlines():
        key, _, value = line.partition(" ")
        if key == "process":
            blocks.append({"pid": [value.strip()]})
        elif key == "socket":
            if listening := _listening(value):
                sockets.append(listening)
        elif key == "stat":
            if process := parse_stat(value):
                processes[process.pid] = process
        elif blocks and key not in host:
            blocks[-1].setdefault(key, []).append(value)
        else:
            host[key] = value.strip()
    candidates: dict[int, tuple[dict[str, list[str]], ServeCommand]] = {}
    for block in blocks:
        pid = int(block["pid"][0]) if block["pid"][0].isdigit() else 0
        command = serve_command(_argv(block))
        if command is not None and pid in processes:
            candidates[pid] = (block, command)
    servers = [
        _server(pid, candidates, processes, sockets, host)
        for pid in sorted(candidates)
        if not any(parent in candidates for parent in _ancestors(pid, processes))
    ]
    return Scan(
        boot_id=host.get("boot", ""),
        hidden=host.get("hidden") == "yes",
        servers=servers,
        unreadable=sum("unreadable" in block for block, _command in candidates.values()),
    )


def parse_stat(line: str) -> Process | None:
    """A line of /proc/<pid>/stat; None when it is cut off."""
    match = _STAT.match(line)
    if match is None:
        return None
    rest = match[4].split()
    # field 22 is the start time; the rest begins with field 5
    if len(rest) < 18 or not rest[17].isdigit():
        return None
    return Process(pid=int(match[1]), parent=int(match[3]), ticks=int(rest[17]), name=match[2])


def _argv(block: dict[str, list[str]]) -> list[str]:
    text = block.get("argv", [""])[0].rstrip("\037 ")
    return [word.replace("\036", "\n") for word in text.split("\037")]


def _ancestors(pid: int, processes: dict[int, Process]) -> list[int]:
    found: list[int] = []
    here = processes.get(pid)
    while here is not None and here.parent not in found and here.parent > 0:
        found.append(here.parent)
        here = processes.get(here.parent)
    return found


def _server(
    pid: int,
    candidates: dict[int, tuple[dict[str, list[str]], ServeCommand]],
    processes: dict[int, Process],
    sockets: list[Listening],
    host: dict[str, str],
) -> Server:
    block, command = candidates[pid]
    family = [process for process in processes.values() if pid in _ancestors(process.pid, processes)]
    family_blocks = [candidates[process.pid][0] for process in family if process.pid in candidates]
    inodes = {inode for each in [block, *family_blocks] for inode in each.get("inode", [])}
    owner = (block.get("owner", [""])[0] + " ").split(" ")
    place = _place(command, sockets, inodes, owner[0], readable="unreadable" not in block)
    notes = [name for name in ("unreadable", "container") if name in block]
    if command.retitled:
        notes.append("retitled")
    if place is None:
        notes.append("no_port")
    uptime, hertz = float(host.get("uptime", "0") or 0), float(host.get("hertz", "100") or 100)
    own = processes[pid]
    return Server(
        pid=pid,
        ticks=own.ticks,
        owner=owner[1] or owner[0],
        argv=command.argv,
        model=command.model,
        served_names=command.served_names or ([command.model] if command.model else []),
        address=place.address if place else "",
        port=place.port if place else None,
        environment=command.environment,
        log_path=block.get("log", [""])[0],
        log_readable="log_readable" in block,
        marker=block.get("marker", [""])[0],
        started_before_s=max(uptime - own.ticks / hertz, 0.0),
        processes=[
            {"pid": process.pid, "ticks": process.ticks, "name": process.name} for process in [own, *family]
        ],
        notes=notes,
    )


def _place(
    command: ServeCommand, sockets: list[Listening], inodes: set[str], uid: str, *, readable: bool
) -> Listening | None:
    """Where the server listens: by its own sockets, else (another user's) by port and owner."""
    own = [each for each in sockets if each.inode in inodes]
    if not own and not readable:
        own = [each for each in sockets if each.uid == uid and each.port == command.port]
    if not command.retitled:
        own = [each for each in own if each.port == command.port]
    # a title tells no port; vLLM's own processes talk over sockets on a loopback address as well
    outward = [each for each in own if not each.address.startswith("127.")]
    return min(outward or own, key=lambda each: each.port, default=None)


def _listening(value: str) -> Listening | None:
    parts = value.split()
    if len(parts) != 3 or ":" not in parts[0]:
        return None
    address, _, port = parts[0].partition(":")
    try:
        return Listening(address=_address(address), port=int(port, 16), uid=parts[1], inode=parts[2])
    except ValueError:
        return None


def _address(text: str) -> str:
    """An address as /proc/net/tcp and tcp6 write it (32-bit words, least byte first)."""
    raw = bytes.fromhex(text)
    if len(raw) == 4:
        return str(ipaddress.IPv4Address(raw[::-1]))
    words = b"".join(raw[start : start + 4][::-1] for start in range(0, 16, 4))
    address = ipaddress.IPv6Address(words)
    return str(address.ipv4_mapped or address)


def base_url(address: str, port: int) -> str:
    """How the server is reached from its own host."""
    if address in ANY_ADDRESS or not address:
        address = "127.0.0.1"
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def parse_answers(stdout: str) -> dict[str, Any]:
    """What /health, /version and /v1/models said: statuses (0: no answer), version, names, length."""
    found: dict[str, Any] = {
        "health": 0, "models": 0, "version": "", "served_names": [], "max_model_len": None,
    }  # fmt: skip
    for line in stdout.splitlines():
        if line.strip() == "nohttp":
            found["nohttp"] = True
        if not line.startswith("answer "):
            continue
        path, status, body = [*line.split(" ", 3)[1:], "", ""][:3]
        code = int(status) if status.isdigit() else 0
        try:
            data = json.loads(body) if body else {}
        except ValueError:
            data = {}
        if not isinstance(data, dict):
            data = {}
        if path == "/health":
            found["health"] = code
        elif path == "/version" and isinstance(data.get("version"), str):
            found["version"] = data["version"]
        elif path == "/v1/models":
            found["models"] = code
            models = [item for item in data.get("data") or [] if isinstance(item, dict)]
            found["served_names"] = [str(item["id"]) for item in models if item.get("id")]
            lengths = [item["max_model_len"] for item in models if isinstance(item.get("max_model_len"), int)]
            found["max_model_len"] = lengths[0] if lengths else None
    return found
