"""What pip says while it installs, line by line, and why it gave up."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import Any

_UNITS = {"bytes": 1, "B": 1, "kB": 1000, "KB": 1000, "MB": 1000**2, "GB": 1000**3}
_COLLECTING = re.compile(r"^Collecting ([^\s(;]+)")
_DOWNLOADING = re.compile(r"^\s*Downloading (\S+)(?: \(([\d.]+) (bytes|B|kB|KB|MB|GB)\))?")
_CACHED = re.compile(r"^\s*(?:Using cached|Processing) (\S+)")
_RAW = re.compile(r"^Progress (\d+) of (\d+)$")
_INSTALLING = re.compile(r"^Installing collected packages: (.+)$")
_BUILDING = re.compile(r"^\s*Building wheel for ([^\s(]+)")
_INSTALLED = re.compile(r"^Successfully installed (.+)$")

#: share of the bar that downloading takes; unpacking a CUDA build takes minutes too
_DOWNLOAD_SHARE = 0.8


@dataclass
class PipProgress:
    """Where pip is. ``phase`` is collecting, downloading, building, installing or installed.

    Bytes are those of wheels only; ``received`` and ``size`` are of the file under way, ``fetched`` of
    those before it. Kept between looks as JSON (``as_dict``).
    """

    phase: str = ""
    package: str = ""
    received: int = 0
    size: int = 0
    fetched: int = 0
    collected: int = 0
    count: int = 0

    def feed(self, line: str) -> bool:
        """Take one line; True if it is worth showing (raw progress lines are not)."""
        if match := _RAW.match(line):
            self.received, self.size = int(match[1]), int(match[2])
            return False
        if match := _COLLECTING.match(line):
            self._settle()
            self.phase, self.package = "collecting", match[1]
            self.collected += 1
        elif match := _DOWNLOADING.match(line):
            name = match[1].rsplit("/", 1)[-1]
            if name.endswith(".metadata"):
                return False
            self._settle()
            self.phase, self.package = "downloading", name
            self.size = int(float(match[2]) * _UNITS[match[3]]) if match[2] else 0
        elif match := _CACHED.match(line):
            self._settle()
            self.package = match[1].rsplit("/", 1)[-1]
        elif match := _BUILDING.match(line):
            self._settle()
            self.phase, self.package = "building", match[1]
        elif match := _INSTALLING.match(line):
            self._settle()
            self.phase, self.package = "installing", ""
            self.count = len(match[1].split(","))
        elif match := _INSTALLED.match(line):
            self.phase, self.package = "installed", ""
            self.count = len(match[1].split())
        return bool(line.strip())

    def _settle(self) -> None:
        """The file under way is finished."""
        self.fetched += max(self.received, self.size)
        self.received = self.size = 0

    def fraction(self, expected_bytes: int) -> float | None:
        """How far along, 0 to 1, against what this kind of install usually downloads; None before it."""
        if self.phase == "installed":
            return 0.98
        if self.phase == "installing":
            return 0.85
        if not self.phase:
            return None
        done = (self.fetched + self.received) / max(expected_bytes, 1)
        return round(min(done, 1.0) * _DOWNLOAD_SHARE, 3)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any] | None) -> PipProgress:
        known = {item.name for item in fields(cls)}
        return cls(**{key: value for key, value in (data or {}).items() if key in known})


#: code -> how pip (or the shell around it) words it; the first that matches counts
_FAILURES: list[tuple[str, re.Pattern[str]]] = [
    ("disk_full", re.compile(r"No space left on device|\[Errno 28\]|Disk quota exceeded")),
    ("no_such_version", re.compile(r"(?:No matching distribution found for|satisfies the requirement) vllm")),
    ("proxy_refused", re.compile(r"ProxyError|Cannot connect to proxy|407 Proxy Authentication")),
    ("certificate", re.compile(r"CERTIFICATE_VERIFY_FAILED|SSLCertVerificationError")),
    (
        "index_unreachable",
        re.compile(
            r"Failed to establish a new connection|Temporary failure in name resolution|"
            r"Name or service not known|Connection timed out|ConnectTimeoutError|Connection refused|"
            r"ReadTimeoutError|Connection broken|Connection reset by peer"
        ),
    ),
    ("index_refused", re.compile(r"\b40[13] Client Error|HTTP error 40[13]")),
    ("wheel_missing", re.compile(r"No matching distribution found for|Could not find a version that")),
    ("conflict", re.compile(r"ResolutionImpossible|conflicting dependencies")),
    ("wrong_python", re.compile(r"requires a different Python|Requires-Python")),
    (
        "build_failed",
        re.compile(r"Failed building wheel|subprocess-exited-with-error|metadata-generation-fail"),
    ),
    ("wheel_broken", re.compile(r"is not a valid wheel|BadZipFile|has an invalid wheel|is invalid\.$", re.M)),
    ("denied", re.compile(r"Permission denied|\[Errno 13\]")),
]


def classify_failure(tail: str, status: int) -> str:
    """A code for why an install with this log's end and exit status failed."""
    for code, pattern in _FAILURES:
        if pattern.search(tail):
            return code
    return "killed" if status in (137, 143) else "install_failed"


def last_error(tail: str) -> str:
    """pip's own last ERROR sentence, or the last line there is."""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or [""])[-1].removeprefix("ERROR:").strip()[:400]
