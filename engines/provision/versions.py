"""What a vLLM release asks of a host: Python, glibc, torch and its CUDA, driver, disk.

Python ranges and torch pins are those of the releases' own package metadata (Requires-Python,
Requires-Dist), glibc the newest of the wheels' platform tags (vLLM's and torch's), CUDA the runtime that
torch's metadata pins. Releases between two listed ones are taken to be like the older one.
"""

from __future__ import annotations

from dataclasses import dataclass

from engines.provision.facts import Version, numbers

GIB = 1024**3


@dataclass(frozen=True)
class Release:
    """From ``since`` on. ``python`` is [floor, ceiling)."""

    since: str
    python: tuple[Version, Version]
    glibc: Version
    torch: str
    cuda: Version


# since, Python floor and ceiling, glibc, torch, CUDA
_TABLE: list[tuple[str, Version, Version, Version, str, Version]] = [
    ("0.6.3", (3, 8), (3, 13), (2, 17), "2.4.0", (12, 1)),
    ("0.6.6", (3, 9), (3, 13), (2, 17), "2.5.1", (12, 4)),
    ("0.8.0", (3, 9), (3, 13), (2, 17), "2.6.0", (12, 4)),
    ("0.9.0", (3, 9), (3, 13), (2, 28), "2.7.0", (12, 6)),
    ("0.10.0", (3, 9), (3, 13), (2, 28), "2.7.1", (12, 6)),
    ("0.10.2", (3, 9), (3, 14), (2, 28), "2.8.0", (12, 8)),
    ("0.11.1", (3, 10), (3, 14), (2, 28), "2.9.0", (12, 8)),
    ("0.12.0", (3, 10), (3, 14), (2, 31), "2.9.0", (12, 8)),
    ("0.14.0", (3, 10), (3, 14), (2, 31), "2.9.1", (12, 8)),
    ("0.17.0", (3, 10), (3, 14), (2, 31), "2.10.0", (12, 8)),
    ("0.20.0", (3, 10), (3, 15), (2, 35), "2.11.0", (13, 0)),
    ("0.21.0", (3, 10), (3, 15), (2, 28), "2.11.0", (13, 0)),
    ("0.27.0", (3, 10), (3, 15), (2, 28), "2.13.0", (13, 0)),
    ("0.32.0", (3, 11), (3, 15), (2, 28), "2.13.0", (13, 0)),
    ("0.33.0", (3, 11), (3, 15), (2, 28), "2.14.0", (13, 0)),
]
RELEASES = [
    Release(since=since, python=(floor, ceiling), glibc=glibc, torch=torch, cuda=cuda)
    for since, floor, ceiling, glibc, torch, cuda in _TABLE
]

#: offered in the form, newest first; any other can be typed
KNOWN_VERSIONS = [
    "0.33.0", "0.32.0", "0.31.0", "0.30.0", "0.29.0", "0.28.0", "0.27.1", "0.26.0", "0.25.1", "0.24.0",
    "0.23.0", "0.22.1", "0.21.0", "0.20.2", "0.19.1", "0.18.1", "0.17.1", "0.16.0", "0.15.1", "0.14.1",
    "0.13.0", "0.12.0", "0.11.2", "0.10.2", "0.9.2", "0.8.5", "0.7.3", "0.6.6.post1",
]  # fmt: skip
DEFAULT_VERSION = KNOWN_VERSIONS[0]

#: what the CPU build of a release needs of torch (its package metadata); others: pip decides
CPU_TORCH = {"0.32.0": "2.13.0"}

# Written from memory, to be checked.
# NVIDIA, "CUDA Compatibility", minor version compatibility: any CUDA 12.x application runs on a driver of
# 525.60.13 or newer, any 13.x on 580 or newer. Below that nothing starts.
_DRIVER_FLOOR: dict[int, Version] = {12: (525, 60, 13), 13: (580,)}

# Written from memory, to be checked.
# NVIDIA, "CUDA Toolkit Release Notes", toolkit driver versions (Linux): the driver each toolkit shipped
# with. An older one works through minor version compatibility, but cannot compile PTX of the newer
# toolkit, which kernels made at run time (Triton) may need.
_DRIVER_SHIPPED: dict[Version, Version] = {
    (12, 1): (530, 30, 2),
    (12, 4): (550, 54, 14),
    (12, 6): (560, 28, 3),
    (12, 8): (570, 26),
    (13, 0): (580, 65, 6),
}

# Measured: a finished CUDA environment takes 9 to 11 GB and pip unpacks beside its cache; a CPU one 3.4 GB.
DISK_NEEDED = {"cuda": 12 * GIB, "cpu": 4 * GIB}
#: what such an install usually downloads, for the progress bar only
DOWNLOAD_EXPECTED = {"cuda": 4_500_000_000, "cpu": 800_000_000}


def release_for(version: str) -> Release | None:
    """The requirements of a version; None for one older than the table. Newer ones: as the newest."""
    wanted = numbers(version)
    fitting = [release for release in RELEASES if numbers(release.since) <= wanted]
    return fitting[-1] if fitting else None


def driver_floor(cuda: Version) -> Version:
    """The oldest driver on which this CUDA runs at all."""
    return _DRIVER_FLOOR[cuda[0]]


def driver_recommended(cuda: Version) -> Version:
    """The driver this CUDA shipped with."""
    return _DRIVER_SHIPPED[cuda]


def written(version: Version) -> str:
    return ".".join(str(part) for part in version)
