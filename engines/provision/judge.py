"""From what a host has to whether a vLLM version can be installed there. Codes, no sentences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engines.provision.facts import HostCheck, PythonFound, choose_python, numbers
from engines.provision.versions import (
    DISK_NEEDED,
    driver_floor,
    driver_recommended,
    release_for,
    written,
)


@dataclass(frozen=True)
class Problem:
    """Something in the way (``blocks``) or worth saying. ``values`` fill the sentence of ``code``."""

    code: str
    blocks: bool
    values: dict[str, Any] = field(default_factory=dict)


def judge(
    found: HostCheck,
    *,
    version: str,
    variant: str,
    source: str,
    despite_driver: bool = False,
) -> tuple[list[Problem], PythonFound | None]:
    """Every problem, blocking ones first, and the Python to use (None when none fits).

    ``variant`` is cuda or cpu, ``source`` index or wheels.
    """
    problems: list[Problem] = []

    def block(code: str, **values: Any) -> None:
        problems.append(Problem(code, True, values))

    def note(code: str, **values: Any) -> None:
        problems.append(Problem(code, False, values))

    if not found.writable:
        block("not_writable", path=found.work)
    if found.environment == "foreign":
        block("environment_foreign", path=f"{found.work}/envs")
    release = release_for(version)
    if release is None:
        block("too_old", version=version)
        return problems, None

    floor, ceiling = release.python
    python = choose_python(found, floor, ceiling)
    if python is None:
        fitting = [item for item in found.pythons if floor <= item.minor < ceiling]
        values = {
            "version": version,
            "floor": written(floor),
            "last": f"3.{ceiling[1] - 1}",
            "have": ", ".join(f"{item.version} ({item.path})" for item in found.pythons),
        }
        if fitting:
            minor = written(fitting[0].minor)
            block("no_venv", **{**values, "path": fitting[0].path, "minor": minor})
        else:
            block("no_python", **values)

    if found.glibc and numbers(found.glibc) < release.glibc:
        block("glibc_old", version=version, have=found.glibc, needed=written(release.glibc))
    elif not found.glibc:
        block("no_glibc", version=version)

    needed = DISK_NEEDED[variant]
    if found.free_bytes is not None and found.free_bytes < needed:
        block("disk_small", path=found.work, free=found.free_bytes, needed=needed)

    if source == "wheels":
        if found.wheels == "missing" or not found.wheels:
            block("wheels_missing", path=found.wheel_path)
        elif found.wheels == "unreadable":
            block("wheels_unreadable", path=found.wheel_path)
        elif found.wheels == "0":
            block("wheels_empty", path=found.wheel_path)

    if variant == "cuda":
        if not found.drivers:
            if found.gpu_error:
                block("gpu_error", error=found.gpu_error)
            else:
                block("no_gpu")
        for driver in found.drivers:
            values = {"have": driver, "cuda": written(release.cuda), "version": version}
            if numbers(driver) < driver_floor(release.cuda):
                needed_driver = written(driver_floor(release.cuda))
                (note if despite_driver else block)("driver_old", **values, needed=needed_driver)
            elif numbers(driver) < driver_recommended(release.cuda):
                note("driver_older", **values, needed=written(driver_recommended(release.cuda)))
    problems.sort(key=lambda problem: not problem.blocks)
    return problems, python
