"""The GPU script run for real against recorded answers of nvidia-smi, and their parser."""

from __future__ import annotations

import os
import subprocess

import pytest

from engines.probe import nvidia_smi as parser
from engines.probe import scripts
from engines.probe.gpu_processes import mark_ours, not_ours
from engines.probe.notes import gpu_note
from engines.ssh.local import local_session


def report() -> parser.GpuReport:
    return parser.parse_gpus(local_session().run(scripts.GPUS, timeout_s=60).stdout)


@pytest.fixture
def marked_process():
    """A process that bears the marker of a start, as an engine's do."""
    process = subprocess.Popen(["sleep", "300"], env={**os.environ, "KVADMIN_START": "marker-1"})
    yield process.pid
    process.kill()
    process.wait()


def test_it_reads_a_real_card(nvidia_smi):
    nvidia_smi("h200")
    found = report()
    assert found.note == ""
    assert found.gpus == [
        {
            "index": 0,
            "uuid": "GPU-00000000-0000-0000-0000-000000000000",
            "name": "NVIDIA H200",
            "memory_total_mib": 143771,
            "memory_used_mib": 0,
            "memory_free_mib": 143156,
            "utilization_percent": 0,
            "temperature_c": 34,
            "power_w": 122.36,
            "driver": "580.159.04",
            "cuda": "13.0",
            "mig_enabled": False,
            "mig": [],
            "processes": [],
        }
    ]


def test_it_reads_a_real_card_in_use(nvidia_smi, marked_process):
    nvidia_smi("h200_busy", pid1=marked_process)
    (card,) = report().gpus
    assert (card["memory_used_mib"], card["memory_free_mib"], card["power_w"]) == (3599, 139558, 125.39)
    assert [(one["pid"], one["memory_mib"], one["marker"]) for one in card["processes"]] == [
        (marked_process, 3590, "marker-1")
    ]


def test_it_reads_several_cards_and_whose_their_processes_are(nvidia_smi, marked_process):
    nvidia_smi("four_a100", pid1=marked_process, pid2=os.getpid())
    found = report()
    assert [gpu["memory_used_mib"] for gpu in found.gpus] == [74213, 74213, 6, 41500]
    assert [gpu["cuda"] for gpu in found.gpus] == ["12.4"] * 4
    ours, other, gone, hidden = (process for gpu in found.gpus for process in gpu["processes"])
    assert (ours["pid"], ours["marker"], ours["memory_mib"]) == (marked_process, "marker-1", 74204)
    assert ours["name"] == "sleep 300"
    assert (other["pid"], other["marker"]) == (os.getpid(), "")
    assert other["user"] == subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip()
    assert (gone["name"], gone["user"], gone["memory_mib"]) == ("", "", 41490)
    assert hidden["memory_mib"] is None
    mark_ours(found.gpus, markers={"marker-1"}, pids=set())
    assert [process["ours"] for gpu in found.gpus for process in gpu["processes"]] == [
        True,
        False,
        False,
        False,
    ]
    assert "marker" not in ours
    assert [(process["gpu"], process["pid"]) for process in not_ours(found.gpus)] == [
        (1, os.getpid()),
        (3, 999999999),
        (3, 999999998),
    ]
    assert not_ours(found.gpus, {0, 2}) == []


def test_a_marker_that_nobody_knows_is_not_ours():
    gpus = [{"index": 0, "processes": [{"pid": 5, "marker": "x"}, {"pid": 6, "marker": ""}]}]
    mark_ours(gpus, markers={"y"}, pids={6})
    assert [process["ours"] for process in gpus[0]["processes"]] == [False, True]


def test_it_reads_mig_instances_and_puts_their_processes_on_the_card(nvidia_smi):
    nvidia_smi("mig", pid1=1)
    card, whole = report().gpus
    assert (card["mig_enabled"], whole["mig_enabled"]) == (True, False)
    assert [(one["profile"], one["index"]) for one in card["mig"]] == [("3g.40gb", 0), ("2g.20gb", 1)]
    assert whole["mig"] == []
    assert card["utilization_percent"] is None
    assert [process["pid"] for process in card["processes"]] == [1]


def test_what_a_card_does_not_report_is_none_not_zero(nvidia_smi):
    nvidia_smi("not_available")
    unified, old = report().gpus
    assert unified["memory_total_mib"] is unified["memory_used_mib"] is unified["memory_free_mib"] is None
    assert (unified["utilization_percent"], unified["name"]) == (3, "NVIDIA GB10")
    assert old["utilization_percent"] is old["temperature_c"] is old["power_w"] is None
    assert old["memory_used_mib"] == 0


def test_an_old_driver_without_mig_is_read_all_the_same(nvidia_smi):
    nvidia_smi("old_driver")
    found = report()
    assert (found.note, found.gpus[0]["name"], found.gpus[0]["cuda"]) == ("", "Tesla V100-PCIE-32GB", "11.0")
    assert found.gpus[0]["mig_enabled"] is False


@pytest.mark.parametrize(
    ("case", "note", "says"),
    [
        ("mismatch", "driver_mismatch", "Restart the host"),
        ("not_loaded", "driver_not_loaded", "not loaded"),
        ("no_permission", "no_permission", "/dev/nvidia"),
        ("no_devices", "no_devices", "sees no GPU"),
        ("container_lost", "nvml_unknown", "Restart the container"),
        ("crashed", "failed", "nvidia-smi failed: Segmentation fault"),
    ],
)
def test_a_failure_is_a_sentence(nvidia_smi, case, note, says):
    nvidia_smi(case)
    found = report()
    assert (found.gpus, found.note) == ([], note)
    assert says in gpu_note(found)


def test_a_lost_card_does_not_hide_the_others(nvidia_smi):
    nvidia_smi("gpu_lost")
    found = report()
    assert [gpu["index"] for gpu in found.gpus] == [0]
    assert "fell off the bus" in gpu_note(found)


def test_an_nvidia_smi_that_hangs_is_a_sentence(nvidia_smi, monkeypatch):
    monkeypatch.setattr(scripts, "GPUS", scripts.GPUS.replace("limit 20", "limit 1"))
    nvidia_smi.install("#!/bin/sh\nexec sleep 100\n")
    found = report()
    assert found.note == "timeout"
    assert "the driver hangs" in gpu_note(found)


@pytest.mark.parametrize(
    ("pci", "note"),
    [
        ("", "no_gpu"),
        ("0x1234\t0x030000", "no_gpu"),
        ("0x8086\t0x030000", "no_gpu"),
        ("0x1002\t0x038000", "amd_gpu"),
        ("0x1234\t0x030000\n0x10de\t0x030200", "driver_missing"),
        ("0x8086\t0x120000", "intel_gpu"),
    ],
)
def test_without_nvidia_smi_the_bus_tells_why(pci, note):
    found = parser.parse_gpus(f"== pci\n{pci}\n== smi\n\n== end\n")
    assert (found.gpus, found.note) == ([], note)
    assert gpu_note(found)


def test_the_light_reading_has_the_figures(nvidia_smi):
    nvidia_smi("four_a100")
    found = parser.parse_sample(local_session().run(scripts.SAMPLE).stdout)
    assert [gpu["power_w"] for gpu in found.gpus] == [389.71, 377.02, 58.44, 71.9]


@pytest.mark.parametrize(
    ("text", "value"),
    [("12", 12), ("12 MiB", 12), ("122.36 W", 122.36), ("[N/A]", None), ("", None), ("[GPU is lost]", None)],
)
def test_figures(text, value):
    assert parser.number(text) == value


@pytest.mark.parametrize(
    "text", ["", "\n", "== end", "== smi\n/x\n== query\n\x00garbage,,,\n== status 0", "==\n"]
)
def test_nonsense_is_no_gpu_and_no_crash(text):
    assert parser.parse_gpus(text).gpus == []
