"""What a host says before a start. Pure: reads what scripts/preflight.sh prints."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field


class PreflightIncomplete(ValueError):
    """The answer was cut."""


@dataclass(frozen=True)
class Gpu:
    """Memory in MiB; None where nvidia-smi has no figure."""

    index: str
    uuid: str
    name: str
    total: float | None
    used: float | None
    free: float | None
    driver: str


@dataclass(frozen=True)
class GpuProcess:
    uuid: str
    pid: int
    name: str
    memory: float | None
    user: str
    marker: str


@dataclass
class Preflight:
    """``executable`` is ok|missing|forbidden|interpreter; ``model`` is folder|file|cached|absent|missing|
    forbidden|no-config; ``nvidia`` is ok|absent|error; ``disk_kb`` is free space in the work folder."""

    disk_kb: int | None = None
    executable: str = "missing"
    interpreter: str = ""
    version: str = ""
    model: str = "missing"
    listening: list[str] = field(default_factory=list)
    owner: tuple[int, str, str] | None = None
    addresses: list[str] = field(default_factory=list)
    bind: list[str] = field(default_factory=list)
    nvidia: str = "absent"
    nvidia_text: str = ""
    gpus: list[Gpu] = field(default_factory=list)
    processes: list[GpuProcess] = field(default_factory=list)

    def port_taken(self, bind: str) -> bool:
        """True when something listens where ``bind`` would."""
        wanted = {ipaddress.ip_address(one) for one in self.bind if _is_address(one)}
        for text in self.listening:
            there = ipaddress.ip_address(text)
            if there.is_unspecified or there in wanted or any(one.is_unspecified for one in wanted):
                return True
        return False

    def has_address(self) -> bool | None:
        """Whether the host owns the bind address; None when that cannot be told."""
        wanted = {ipaddress.ip_address(one) for one in self.bind if _is_address(one)}
        if not wanted:
            return False
        if any(one.is_unspecified or one.is_loopback for one in wanted):
            return True
        if not self.addresses:
            return None
        return bool(wanted & {ipaddress.ip_address(one) for one in self.addresses if _is_address(one)})

    def chosen(self, names: list[str]) -> tuple[list[Gpu], list[str]]:
        """The GPUs that the names (indexes or UUIDs; none: all) mean, and the names that mean none."""
        if not names:
            return list(self.gpus), []
        found, missing = [], []
        for name in names:
            match = [gpu for gpu in self.gpus if gpu.index == name or gpu.uuid.startswith(name)]
            found += match
            if not match and not name.startswith("MIG-"):
                missing.append(name)
        return found, missing


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def hex_address(text: str) -> str:
    """An address as /proc/net/tcp and tcp6 write it: words of four bytes, each little-endian."""
    raw = bytes.fromhex(text)
    words = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
    address = ipaddress.ip_address(words)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def parse_preflight(text: str) -> Preflight:
    lines = text.splitlines()
    if not lines or lines[-1] != "end":
        raise PreflightIncomplete(text[-200:])
    facts = Preflight()
    for line in lines[:-1]:
        kind, *rest = line.split("\t")
        match kind, rest:
            case "disk", [value] if value.isdigit():
                facts.disk_kb = int(value)
            case "executable", [verdict, *more]:
                facts.executable, facts.interpreter = verdict, "".join(more)
            case "version", [value]:
                facts.version = value
            case "model", [value]:
                facts.model = value
            case "listen", [value]:
                facts.listening.append(hex_address(value))
            case "owner", [pid, name, marker] if pid.isdigit():
                facts.owner = (int(pid), name, marker.rstrip("."))
            case "address", [value]:
                facts.addresses.append(value)
            case "bind", [value]:
                facts.bind.append(value)
            case "nvidia", [verdict, *more]:
                facts.nvidia, facts.nvidia_text = verdict, "".join(more)
            case "gpu", [row]:
                parts = [part.strip() for part in row.split(",")]
                if len(parts) == 7:
                    index, uuid, name, total, used, free, driver = parts
                    facts.gpus.append(
                        Gpu(index, uuid, name, _number(total), _number(used), _number(free), driver)
                    )
            case "app", [uuid, pid, name, used, user, marker] if pid.isdigit():
                facts.processes.append(
                    GpuProcess(uuid, int(pid), name, _number(used), user.rstrip("."), marker.rstrip("."))
                )
    return facts
