"""Reads what nvidia-smi printed, whatever it printed. Pure."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field
from typing import Any

_AMD, _NVIDIA, _INTEL = "0x1002", "0x10de", "0x8086"
#: PCI classes of display controllers (VGA, 3D) and of processing accelerators
_GPU_CLASSES = ("0x03", "0x12")

_FIELDS = (
    "index",
    "uuid",
    "name",
    "memory_total_mib",
    "memory_used_mib",
    "memory_free_mib",
    "utilization_percent",
    "temperature_c",
    "power_w",
    "driver",
)

#: what nvidia-smi says when it fails -> note; the first that fits counts
_FAILURES = (
    ("driver/library version mismatch", "driver_mismatch"),
    ("couldn't communicate with the nvidia driver", "driver_not_loaded"),
    ("driver not loaded", "driver_not_loaded"),
    ("insufficient permissions", "no_permission"),
    ("permission denied", "no_permission"),
    ("no devices were found", "no_devices"),
    ("gpu is lost", "gpu_lost"),
    ("unable to determine the device handle", "gpu_lost"),
    ("initialize nvml: unknown error", "nvml_unknown"),
    ("nvml library not found", "driver_missing"),
    ("libnvidia-ml", "driver_missing"),
)


@dataclass
class GpuReport:
    """``gpus`` as in Host.facts; ``note`` says why there are none or not all ("" when all is well).

    Notes: no_gpu, amd_gpu, intel_gpu, driver_missing, driver_mismatch, driver_not_loaded, no_permission,
    no_devices, gpu_lost, nvml_unknown, timeout, failed. ``said`` is nvidia-smi's own first line.
    """

    gpus: list[dict[str, Any]] = field(default_factory=list)
    note: str = ""
    said: str = ""


def sections(text: str) -> dict[str, list[str]]:
    """The lines of each "== name" section; of two with one name the later counts."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("== "):
            name, _blank, value = line[3:].partition(" ")
            lines = found[name] = [value] if value else []
        elif line.strip():
            lines.append(line)
    return found


def parse_gpus(text: str) -> GpuReport:
    """What scripts.GPUS printed."""
    parts = sections(text)
    if not _smi(parts):
        return GpuReport(note=_note_from_pci(parts.get("pci", [])))
    report = _parse_query(parts)
    if not report.gpus:
        return report
    cuda = _cuda_version("\n".join(parts.get("header", [])))
    instances = parse_mig(parts.get("list", []))
    owners = _parse_owners(parts.get("owners", []))
    processes = _parse_processes(parts.get("processes", []), owners)
    for gpu in report.gpus:
        gpu["cuda"] = cuda
        gpu["mig"] = instances.get(gpu["uuid"], [])
        own = {gpu["uuid"], *(instance["uuid"] for instance in gpu["mig"])}
        gpu["processes"] = [process for uuid, process in processes if uuid in own]
    return report


def parse_sample(text: str) -> GpuReport:
    """What scripts.SAMPLE printed: the GPUs' figures only."""
    parts = sections(text)
    return _parse_query(parts) if _smi(parts) else GpuReport(note="no_gpu")


def _smi(parts: dict[str, list[str]]) -> str:
    return next(iter(parts.get("smi", [])), "")


def _parse_query(parts: dict[str, list[str]]) -> GpuReport:
    lines = parts.get("query", [])
    status = next(iter(parts.get("status", [])), "")
    report = GpuReport()
    others = []
    for row in csv.reader(lines, skipinitialspace=True):
        gpu = _gpu(row)
        if gpu:
            report.gpus.append(gpu)
        elif row:
            others.append(", ".join(row).strip())
    said = next(iter(others), "")
    if status == "124":
        report.note = "timeout"
    elif others or status != "0" or not report.gpus:
        text = " ".join(others).lower()
        report.note = next((note for phrase, note in _FAILURES if phrase in text), "")
        if not report.note:
            report.note = "no_devices" if not said and status == "0" else "failed"
    report.said = said[:300] if report.note else ""
    return report


def _gpu(row: list[str]) -> dict[str, Any] | None:
    if len(row) not in {len(_FIELDS), len(_FIELDS) + 1} or not row[0].strip().isdigit():
        return None
    values = dict(zip(_FIELDS, (value.strip() for value in row), strict=False))
    gpu: dict[str, Any] = {
        "index": int(values["index"]),
        "uuid": values["uuid"],
        "name": _text(values["name"]),
        "driver": _text(values["driver"]),
        "power_w": number(values["power_w"]),
        "mig_enabled": row[-1].strip() == "Enabled" if len(row) > len(_FIELDS) else False,
        "mig": [],
        "cuda": "",
        "processes": [],
    }
    for name in _FIELDS[3:8]:
        value = number(values[name])
        gpu[name] = None if value is None else round(value)
    total, used, free = (gpu[f"memory_{which}_mib"] for which in ("total", "used", "free"))
    if free is None and total is not None and used is not None:
        gpu["memory_free_mib"] = total - used
    return gpu


def number(text: str) -> float | None:
    """A figure, with or without its unit; None for [N/A], [Not Supported], [Unknown Error] and the like."""
    match = re.fullmatch(r"(-?\d+(?:\.\d+)?)(?:\s*(?:MiB|W|C|%))?", text.strip())
    return float(match[1]) if match else None


def _text(value: str) -> str:
    return "" if value.startswith("[") else value


def _cuda_version(header: str) -> str:
    match = re.search(r"CUDA Version:\s*(\d+\.\d+)", header)
    return match[1] if match else ""


def parse_mig(lines: list[str]) -> dict[str, list[dict[str, Any]]]:
    """MIG instances by the UUID of their GPU, from ``nvidia-smi -L``."""
    found: dict[str, list[dict[str, Any]]] = {}
    card = ""
    for line in lines:
        gpu = re.match(r"GPU \d+: .*\(UUID: (GPU-[^)]+)\)", line)
        if gpu:
            card = gpu[1]
            continue
        instance = re.match(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[^)]+)\)", line)
        if instance and card:
            found.setdefault(card, []).append(
                {"profile": instance[1], "index": int(instance[2]), "uuid": instance[3]}
            )
    return found


def _parse_owners(lines: list[str]) -> dict[int, tuple[str, str, str]]:
    """pid -> (user, marker, command line)."""
    owners = {}
    for line in lines:
        pid, user, marker, command = (*line.split("\t"), "", "", "", "")[:4]
        if pid.strip().isdigit():
            owners[int(pid)] = (user.strip(), marker.strip(), command.strip())
    return owners


def _parse_processes(
    lines: list[str], owners: dict[int, tuple[str, str, str]]
) -> list[tuple[str, dict[str, Any]]]:
    """[(gpu uuid, process)]; a name may contain commas, so the figures are taken from both ends."""
    found = []
    for line in lines:
        match = re.fullmatch(r"\s*((?:GPU|MIG)-[^,\s]+)\s*,\s*(\d+)\s*,\s*(.*?)\s*,\s*([^,]*)", line)
        if not match:
            continue
        uuid, pid, name, memory = match[1], int(match[2]), match[3], number(match[4])
        user, marker, command = owners.get(pid, ("", "", ""))
        found.append(
            (
                uuid,
                {
                    "pid": pid,
                    "name": command or _text(name),
                    "user": user,
                    "memory_mib": None if memory is None else round(memory),
                    "marker": marker,
                    "ours": bool(marker),
                },
            )
        )
    return found


def _note_from_pci(lines: list[str]) -> str:
    """Why there is no nvidia-smi, judged by the display controllers on the PCI bus."""
    vendors = {
        line.split("\t")[0]
        for line in lines
        if len(line.split("\t")) == 2 and line.split("\t")[1].startswith(_GPU_CLASSES)
    }
    if _NVIDIA in vendors:
        return "driver_missing"
    if _AMD in vendors:
        return "amd_gpu"
    return "intel_gpu" if any(_is_intel_accelerator(line) for line in lines) else "no_gpu"


def _is_intel_accelerator(line: str) -> bool:
    """An Intel processing accelerator or a card without a display; not the graphics of a processor."""
    vendor, _tab, kind = line.partition("\t")
    return vendor == _INTEL and kind.startswith(("0x12", "0x0380"))
