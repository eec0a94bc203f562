"""The checks before a start: what each found, in a sentence, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from engines.launch.preflight import Gpu, Preflight
from kvadmin.sentences import gettext as _
from kvadmin.sentences import pack

#: disk space in the work folder below which a start is refused: logs and compile caches go there
LEAST_DISK_KB = 512 * 1024


@dataclass(frozen=True)
class Need:
    """What the start asks of the host. ``utilization`` is None when the KV cache has a fixed size."""

    executable: str
    bind_address: str
    port: int
    model: str
    version: str = ""
    gpus: list[str] = field(default_factory=list)
    cards: int = 1
    utilization: float | None = 0.9
    offline: bool = False


@dataclass(frozen=True)
class Check:
    """One check. ``safe`` means that an operator may override a failure of it."""

    code: str
    ok: bool
    text: str
    remedy: str = ""
    safe: bool = False

    def as_dict(self) -> dict[str, Any]:
        """As JSON; its sentences as kvadmin.sentences packs them."""
        return {**asdict(self), "text": pack(self.text), "remedy": pack(self.remedy)}


def run_checks(facts: Preflight, need: Need) -> list[Check]:
    version = facts.version or need.version
    return [
        _environment(facts, need, version),
        _disk(facts),
        _model(facts, need),
        *_port(facts, need),
        *_gpus(facts, need, cpu="cpu" in version),
    ]


def refused(checks: Iterable[Check], override: Iterable[str]) -> Check | None:
    """The first failure that is not overridden, if any. Only safe ones can be."""
    waived = set(override)
    return next((one for one in checks if not one.ok and not (one.safe and one.code in waived)), None)


def _environment(facts: Preflight, need: Need, version: str) -> Check:
    if facts.executable == "ok":
        text = _("vLLM %(version)s is there.") if version else _("vLLM is there.")
        return Check("environment", True, text % {"version": version})
    sentence = {
        "missing": _("There is no vLLM at %(path)s."),
        "forbidden": _("%(path)s may not be run by this user."),
        "interpreter": _("The Python behind %(path)s is gone."),
    }[facts.executable]
    return Check(
        "environment_missing",
        False,
        sentence % {"path": need.executable},
        _("Provision vLLM on the host again, or choose another environment for the engine."),
    )


def _disk(facts: Preflight) -> Check:
    if facts.disk_kb is None or facts.disk_kb >= LEAST_DISK_KB:
        return Check("disk", True, _("There is space for logs."))
    return Check(
        "disk_full",
        False,
        _("Only %(mib)d MiB are free in kvadmin's folder on the host.") % {"mib": facts.disk_kb // 1024},
        _("Free space on that disk: logs and compiled kernels go there."),
        safe=facts.disk_kb > 0,
    )


def _model(facts: Preflight, need: Need) -> Check:
    values = {"model": need.model}
    if facts.model in {"folder", "file", "cached"}:
        return Check("model", True, _("The model %(model)s is on the host.") % values)
    if facts.model == "absent":
        if not need.offline:
            return Check(
                "model",
                True,
                _("The model %(model)s is not on the host yet: vLLM will download it.") % values,
            )
        return Check(
            "model_absent",
            False,
            _("The model %(model)s is not on the host, and downloads are switched off.") % values,
            _("Copy the model to the host, or take HF_HUB_OFFLINE out of the profile's environment."),
            safe=True,
        )
    sentence = {
        "missing": _("There is no model at %(model)s on the host."),
        "forbidden": _("The folder %(model)s may not be read by this user."),
        "no-config": _("The folder %(model)s holds no config.json."),
    }[facts.model]
    return Check(
        "model_missing",
        False,
        sentence % values,
        _("Correct the model's path in the profile, or copy the model there."),
        safe=facts.model == "no-config",
    )


def _port(facts: Preflight, need: Need) -> list[Check]:
    place = {"address": need.bind_address, "port": need.port}
    checks = []
    if facts.has_address() is False:
        checks.append(
            Check(
                "bind_address_missing",
                False,
                _("The host has no address %(address)s to listen on.") % place,
                _("Give the engine one of these as its bind address: %(known)s.")
                % {"known": ", ".join(facts.addresses) or "127.0.0.1"},
                safe=True,
            )
        )
    if not facts.port_taken(need.bind_address):
        return [*checks, Check("port", True, _("Port %(port)d is free.") % place)]
    if facts.owner:
        pid, name, marker = facts.owner
        sentence = (
            _("Port %(port)d is used by another engine of kvadmin (process %(pid)d).")
            if marker
            else _("Port %(port)d is used by %(name)s (process %(pid)d).")
        )
        text = sentence % {**place, "pid": pid, "name": name or "?"}
    else:
        text = _("Port %(port)d is used by a program of another user.") % place
    return [
        *checks,
        Check("port_taken", False, text, _("End that program, or give the engine another port.")),
    ]


def _gpus(facts: Preflight, need: Need, *, cpu: bool) -> list[Check]:
    if cpu:
        return [Check("gpu", True, _("This is a vLLM for CPUs: no GPU is needed."))]
    if facts.nvidia == "absent":
        return [
            Check(
                "gpu_missing",
                False,
                _("The host has no nvidia-smi: no GPU was found."),
                _("Install the NVIDIA driver, or choose a vLLM environment for CPUs."),
                safe=True,
            )
        ]
    if facts.nvidia == "error":
        return [
            Check(
                "driver",
                False,
                _("The NVIDIA driver does not answer: %(text)s") % {"text": facts.nvidia_text},
                _("Reload the driver or restart the host; after a driver update that is always needed."),
                safe=True,
            )
        ]
    chosen, missing = facts.chosen(need.gpus)
    if missing or len(chosen) < need.cards:
        return [_too_few(facts, need, chosen, missing)]
    using = chosen if need.gpus else sorted(chosen, key=_position)[: need.cards]
    driver = using[0].driver if using else "?"
    return [
        Check("driver", True, _("The NVIDIA driver %(version)s answers.") % {"version": driver}),
        *_foreign(facts, using),
        *_memory(need, using),
    ]


def _position(gpu: Gpu) -> int:
    return int(gpu.index) if gpu.index.isdigit() else 0


def _too_few(facts: Preflight, need: Need, chosen: list[Gpu], missing: list[str]) -> Check:
    if missing:
        return Check(
            "gpu_unknown",
            False,
            _("The host has no GPU %(names)s.") % {"names": ", ".join(missing)},
            _("It has: %(known)s. Correct the GPUs in the profile.")
            % {"known": ", ".join(gpu.index for gpu in facts.gpus) or "0"},
        )
    return Check(
        "gpu_too_few",
        False,
        _("The profile needs %(need)d GPUs, and %(have)d are there to use.")
        % {"need": need.cards, "have": len(chosen)},
        _("Lower tensor or pipeline parallel, or choose more GPUs in the profile."),
    )


def _foreign(facts: Preflight, using: list[Gpu]) -> list[Check]:
    uuids = {gpu.uuid: gpu.index for gpu in using}
    foreign = [one for one in facts.processes if one.uuid in uuids and not one.marker]
    if not foreign:
        return [Check("gpu_processes", True, _("No other program uses these GPUs."))]
    named = ", ".join(
        _("%(name)s (process %(pid)d, user %(user)s, GPU %(gpu)s)")
        % {
            "name": one.name.rsplit("/", 1)[-1],
            "pid": one.pid,
            "user": one.user or "?",
            "gpu": uuids[one.uuid],
        }
        for one in foreign[:5]
    )
    return [
        Check(
            "gpu_busy",
            False,
            _("Programs that kvadmin did not start use these GPUs: %(programs)s.") % {"programs": named},
            _("End them or choose other GPUs; override this if they leave enough memory."),
            safe=True,
        )
    ]


def _memory(need: Need, using: list[Gpu]) -> list[Check]:
    if need.utilization is None:
        return []
    for gpu in using:
        if gpu.total is None or gpu.free is None:
            continue
        wanted = gpu.total * need.utilization
        if gpu.free < wanted:
            return [
                Check(
                    "gpu_memory_short",
                    False,
                    _(
                        "GPU %(gpu)s has %(free).1f GiB free, and a utilization of %(share)s asks for "
                        "%(wanted).1f GiB."
                    )
                    % {
                        "gpu": gpu.index,
                        "free": gpu.free / 1024,
                        "wanted": wanted / 1024,
                        "share": need.utilization,
                    },
                    _("Lower the GPU memory utilization, or end what holds the memory."),
                    safe=True,
                )
            ]
    return [Check("gpu_memory", True, _("The GPUs have the memory asked for."))]
