"""What the check script found on a host, and which Python to take."""

from __future__ import annotations

from dataclasses import dataclass, field

Version = tuple[int, ...]


def numbers(text: str) -> Version:
    """The leading numbers of a version: "570.133.20" -> (570, 133, 20); () when there are none."""
    found: list[int] = []
    for part in text.strip().split("."):
        digits = ""
        for character in part:
            if not character.isdigit():
                break
            digits += character
        if not digits:
            break
        found.append(int(digits))
        if digits != part:
            break
    return tuple(found)


@dataclass(frozen=True)
class PythonFound:
    """A Python on the host; ``how`` an environment is made with it: venv, virtualenv or none."""

    path: str
    version: str
    how: str

    @property
    def minor(self) -> Version:
        return numbers(self.version)[:2]


@dataclass(frozen=True)
class HostCheck:
    """Answers of the check script. Sizes in bytes; None where the host did not say."""

    work: str = ""
    arch: str = ""
    glibc: str = ""
    writable: bool = False
    free_bytes: int | None = None
    environment: str = "none"
    begun_by: str = ""
    drivers: list[str] = field(default_factory=list)
    gpu_error: str = ""
    wheels: str = ""
    wheel_path: str = ""
    pythons: list[PythonFound] = field(default_factory=list)
    uv: str = ""


def parse_check(stdout: str) -> HostCheck:
    """Read the check script's lines; an unknown one is passed over."""
    values: dict[str, str] = {}
    drivers: list[str] = []
    pythons: list[PythonFound] = []
    for line in stdout.splitlines():
        key, _, value = line.partition(" ")
        value = value.strip()
        if key == "driver":
            if value and value not in drivers:
                drivers.append(value)
        elif key == "python":
            parts = value.split(" ", 2)
            if len(parts) == 3 and parts[2] not in {python.path for python in pythons}:
                pythons.append(PythonFound(path=parts[2], version=parts[0], how=parts[1]))
        elif value:
            values[key] = value
    free = values.get("free_kib", "")
    return HostCheck(
        work=values.get("work", ""),
        arch=values.get("arch", ""),
        glibc=values.get("glibc", ""),
        writable=values.get("writable") == "yes",
        free_bytes=int(free) * 1024 if free.isdigit() else None,
        environment=values.get("environment", "none"),
        begun_by=values.get("begun_by", ""),
        drivers=drivers,
        gpu_error=values.get("gpu_error", ""),
        wheels=values.get("wheels", ""),
        wheel_path=values.get("wheel_path", ""),
        pythons=pythons,
        uv=values.get("uv", ""),
    )


def parse_pairs(stdout: str) -> dict[str, str]:
    """ "key value" lines as a mapping; the last of a key counts."""
    pairs = (line.partition(" ") for line in stdout.splitlines() if " " in line)
    return {key: value.strip() for key, _, value in pairs}


def choose_python(found: HostCheck, floor: Version, ceiling: Version) -> PythonFound | None:
    """The Python to use: fits [floor, ceiling), can make an environment, first in the host's own order.

    With uv on the host, one that cannot make an environment itself will do.
    """
    fitting = [python for python in found.pythons if floor <= python.minor < ceiling]
    able = [python for python in fitting if python.how != "none"]
    return (able or (fitting if found.uv else []) or [None])[0]
