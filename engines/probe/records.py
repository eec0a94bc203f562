"""Reads the probe's records (engines/probe/scripts.py). Pure."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


def records(text: str) -> Iterator[list[str]]:
    """The tab-separated fields of each line that has any."""
    for line in text.splitlines():
        if line.strip():
            yield [part.strip() for part in line.split("\t")]


def whole(text: str) -> int | None:
    """A non-negative whole number, or None."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() else None


@dataclass
class Contact:
    """Who we are on the host, and since which boot."""

    boot_id: str = ""
    user: str = ""
    home: str = ""

    @property
    def is_root(self) -> bool:
        return self.user == "root"


def parse_contact(text: str) -> Contact:
    contact = Contact()
    for name, *values in records(text):
        value = values[0] if values else ""
        if name == "boot_id":
            contact.boot_id = value if re.fullmatch(r"[0-9a-f-]{36}", value) else ""
        elif name == "user":
            contact.user = value
        elif name == "home":
            contact.home = value
    return contact


def parse_system(text: str) -> dict[str, Any]:
    """The "os", "cpu", "memory", "disk", "systemd_user" and "linger" parts of Host.facts."""
    os: dict[str, Any] = {"name": "", "version": "", "kernel": "", "glibc": "", "arch": ""}
    cpu: dict[str, Any] = {"model": "", "cores": None}
    facts: dict[str, Any] = {
        "os": os,
        "cpu": cpu,
        "memory": {"total_bytes": None, "available_bytes": None},
        "disk": [],
        "systemd_user": False,
        "linger": False,
    }
    for name, *values in records(text):
        first, second = (*values, "", "")[:2]
        match name:
            case "os":
                os["name"], os["version"] = first, second
            case "kernel":
                os["kernel"], os["arch"] = first, second
            case "glibc":
                found = re.search(r"(\d+\.\d+)\s*$", first)
                os["glibc"] = found[1] if found else ""
            case "cpu" | "cpu_lscpu":
                cpu["model"] = cpu["model"] or first
            case "cores":
                cpu["cores"] = whole(first)
            case "memory":
                facts["memory"] = {"total_bytes": _kilobytes(first), "available_bytes": _kilobytes(second)}
            case "disk":
                _add_disk(facts["disk"], first, second)
            case "systemd_user" | "linger":
                facts[name] = first == "yes"
    return facts


def _kilobytes(text: str) -> int | None:
    number = whole(text)
    return None if number is None else number * 1024


def _add_disk(disks: list[dict[str, Any]], path: str, sizes: str) -> None:
    total, _blank, free = sizes.partition(" ")
    if path in {disk["path"] for disk in disks} or whole(total) is None:
        return
    disks.append({"path": path, "total_bytes": _kilobytes(total), "free_bytes": _kilobytes(free)})


def parse_pythons(text: str) -> list[dict[str, Any]]:
    """[{"path", "version", "venv"}] from 3.9 on, newest first; ``venv``: it can make virtual environments."""
    found = [
        {"path": values[0], "version": values[1], "venv": values[2:] == ["yes"]}
        for name, *values in records(text)
        if name == "python" and len(values) >= 2 and re.fullmatch(r"3\.(9|\d\d+)\.\d+", values[1])
    ]
    return sorted(found, key=lambda one: [-int(part) for part in one["version"].split(".")])


@dataclass
class FoundEnvironment:
    """A Python environment that has vLLM's metadata. ``executable`` is empty when there is no command."""

    path: str
    version: str
    python_version: str
    executable: str
    complete: bool


@dataclass
class FoundEnvironments:
    work_dir: str = ""
    environments: list[FoundEnvironment] = field(default_factory=list)


def parse_environments(text: str) -> FoundEnvironments:
    found = FoundEnvironments()
    for name, *values in records(text):
        if name == "work" and values:
            found.work_dir = values[0]
        elif name == "environment" and len(values) == 5 and values[1]:
            path, version, python, executable, complete = values
            python = python.split(" ")[0]
            found.environments.append(
                FoundEnvironment(path.rstrip("/"), version, python, executable, complete == "yes")
            )
    return found


def parse_models(text: str) -> tuple[list[dict[str, Any]], list[str]]:
    """([{"path", "name", "bytes", "kind", "partial"}], model folders that do not exist).

    ``kind`` is hf-cache or folder; ``partial``: a download of it is not finished.
    """
    models, missing = [], []
    for kind, *values in records(text):
        if kind == "missing" and values:
            missing.append(values[0])
        elif kind in {"hf-cache", "folder"} and len(values) == 4:
            path, name, kilobytes, partial = values
            models.append(
                {
                    "path": path,
                    "name": name.replace("--", "/", 1) if kind == "hf-cache" else name,
                    "bytes": _kilobytes(kilobytes),
                    "kind": kind,
                    "partial": partial == "yes",
                }
            )
    return models, missing


def parse_configs(text: str) -> list[dict[str, Any]]:
    """[{"path", "weight_bytes", "config"}] of the folders whose config.json holds an object."""
    found = []
    for kind, *values in records(text):
        if kind != "config" or len(values) != 3:
            continue
        path, size, encoded = values
        try:
            config = json.loads(base64.b64decode(encoded, validate=True))
        except (ValueError, RecursionError):
            continue
        if isinstance(config, dict):
            weights = int(size) if size.isdigit() else 0
            found.append({"path": path, "weight_bytes": weights or None, "config": config})
    return found
