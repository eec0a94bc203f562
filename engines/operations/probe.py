"""Look at a host: what it is, what is on its GPUs, what could serve and what could be served."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy

from engines.actions.store_flags import StoreFlags
from engines.actions.store_model_configs import StoreModelConfigs
from engines.choices import OperationKind
from engines.flag_lists import FlagsUnreadable, executable_of, is_known, read_flags
from engines.host_states import note_host_error, note_host_online
from engines.models import EngineStart, GpuSample, Host, Operation, VllmEnvironment
from engines.operations.base import Context, Done, Flow, Step, register
from engines.probe import nvidia_smi, records, scripts
from engines.probe.gpu_processes import mark_ours, not_ours
from engines.probe.notes import gpu_note
from engines.ssh.errors import CommandTimeout, HostError
from kvadmin.actions import Actor
from kvadmin.sentences import gettext as _
from kvadmin.sentences import joined, ngettext, pack

#: how many starts back a process on a GPU is still known as ours by its marker
_STARTS_KNOWN = 2000
_GIB = 1024**3

#: models whose shape one probe reads
_CONFIGS = 200


def _noting(step: Callable[[Context], Done]) -> Callable[[Context], Done]:
    """Write an error of the connection to the host's state before the runner sees it."""

    @wraps(step)
    def run(context: Context) -> Done:
        try:
            return step(context)
        except HostError as error:
            note_host_error(context.host, error)
            raise

    return run


@_noting
def connect(context: Context) -> Done:
    contact = records.parse_contact(context.session.run(scripts.CONNECT).stdout)
    note_host_online(context.host, boot_id=contact.boot_id)
    return Done(_("Signed in as %(user)s.") % {"user": contact.user or context.host.username})


@_noting
def system(context: Context) -> Done:
    host = context.host
    result = context.session.run(scripts.SYSTEM, args=[host.work_dir, *host.model_dirs], timeout_s=60)
    facts = records.parse_system(result.stdout)
    contact = records.parse_contact(result.stdout)
    note_host_online(host, boot_id=contact.boot_id)
    merge_facts(host, {**facts, "user": contact.user, "home": contact.home})
    memory = facts["memory"]["total_bytes"]
    for disk in facts["disk"]:
        context.log(_("Disk of %(path)s: %(free)d GiB free.") % {"path": disk["path"], "free": _gib(disk)})
    return Done(
        _("%(os)s %(version)s, kernel %(kernel)s, %(cores)s processor cores, %(memory)s GiB memory.")
        % {
            "os": facts["os"]["name"],
            "version": facts["os"]["version"],
            "kernel": facts["os"]["kernel"],
            "cores": facts["cpu"]["cores"] or "?",
            "memory": round(memory / _GIB) if memory else "?",
        }
    )


@_noting
def gpus(context: Context) -> Done:
    host = context.host
    try:
        report = nvidia_smi.parse_gpus(context.session.run(scripts.GPUS, timeout_s=120).stdout)
    except CommandTimeout:
        report = nvidia_smi.GpuReport(note="timeout")
    mark_ours(report.gpus, **known_processes(host))
    note = gpu_note(report)
    merge_facts(host, {"gpus": report.gpus, "gpu_note": pack(note), "gpu_note_code": report.note})
    save_samples(host, report)
    for gpu in report.gpus:
        for process in gpu["processes"]:
            context.log(
                _("GPU %(gpu)d: process %(pid)d of %(user)s, %(memory)s MiB, %(name)s")
                % {
                    "gpu": gpu["index"],
                    "pid": process["pid"],
                    "user": process["user"] or "?",
                    "memory": "?" if process["memory_mib"] is None else process["memory_mib"],
                    "name": process["name"][:200],
                }
            )
    if not report.gpus:
        return Done(note)
    others = len(not_ours(report.gpus))
    names = sorted({gpu["name"] for gpu in report.gpus})
    detail = ngettext("%(count)d GPU: %(names)s.", "%(count)d GPUs: %(names)s.", len(report.gpus)) % {
        "count": len(report.gpus),
        "names": ", ".join(names),
    }
    if others:
        detail += " " + ngettext(
            "%(count)d process on them is not kvadmin's.",
            "%(count)d processes on them are not kvadmin's.",
            others,
        ) % {"count": others}
    return Done(joined(detail, note))


@_noting
def pythons(context: Context) -> Done:
    try:
        result = context.session.run(scripts.PYTHONS, timeout_s=90)
    except CommandTimeout as error:
        return Done(error.message, skipped=True)
    found = records.parse_pythons(result.stdout)
    merge_facts(context.host, {"pythons": found})
    if not found:
        return Done(_("No Python 3.9 or newer was found. Installing vLLM needs one."))
    versions = ", ".join(dict.fromkeys(one["version"] for one in found))
    return Done(_("Python %(versions)s.") % {"versions": versions})


@_noting
def environments(context: Context) -> Done:
    host = context.host
    try:
        result = context.session.run(scripts.ENVIRONMENTS, args=[host.work_dir], timeout_s=60)
    except CommandTimeout as error:
        return Done(error.message, skipped=True)
    found = records.parse_environments(result.stdout)
    save_environments(host, found)
    if not found.environments:
        return Done(_("No vLLM is installed yet."))
    versions = ", ".join(f"{one.version} ({one.path})" for one in found.environments)
    return Done(_("vLLM %(versions)s.") % {"versions": versions})


@_noting
def models(context: Context) -> Done:
    host = context.host
    try:
        result = context.session.run(scripts.MODELS, args=host.model_dirs, timeout_s=180)
    except CommandTimeout as error:
        return Done(error.message, skipped=True)
    found, missing = records.parse_models(result.stdout)
    merge_facts(host, {"models": found, "model_dirs_missing": missing})
    Host.objects.filter(pk=host.pk).update(facts_at=timezone.now())
    detail = ngettext("%(count)d model on disk.", "%(count)d models on disk.", len(found)) % {
        "count": len(found)
    }
    if missing:
        detail += " " + _("Not there: %(folders)s.") % {"folders": ", ".join(missing)}
    return Done(detail)


@_noting
def flags(context: Context) -> Done:
    """Ask each vLLM that the catalogue lacks for its flags, once."""
    unknown = [row for row in context.host.environments.filter(usable=True) if not is_known(row.version)]
    if not unknown:
        return Done()
    read = []
    for row in unknown:
        executable = executable_of(row)
        try:
            found = read_flags(context.session, executable)
        except (FlagsUnreadable, CommandTimeout):
            context.log(_("%(path)s printed no list of its flags.") % {"path": executable})
            continue
        StoreFlags(Actor.system(), context.host, row.version, executable, found).run()
        read.append(row.version)
    if not read:
        return Done(_("The flags of vLLM %(versions)s could not be read.") % {"versions": _versions(unknown)})
    return Done(_("Flags of vLLM %(versions)s.") % {"versions": ", ".join(read)})


@_noting
def configs(context: Context) -> Done:
    """Read each model's config.json and the size of its weights, for the planner."""
    host = context.host
    names = {model["path"]: model["name"] for model in host.facts.get("models") or ()}
    if not names:
        return Done()
    result = context.session.run(scripts.CONFIGS, args=list(names)[:_CONFIGS], timeout_s=120)
    found = records.parse_configs(result.stdout)
    for one in found:
        one["name"] = names.get(one["path"], one["path"])
    StoreModelConfigs(Actor.system(), host, found).run()
    return Done(
        ngettext("The shape of %(count)d model.", "The shapes of %(count)d models.", len(found))
        % {"count": len(found)}
    )


def _versions(rows: list[VllmEnvironment]) -> str:
    return ", ".join(row.version for row in rows)


@register
class Probe(Flow):
    """Every step keeps what it found at once, so an ended probe leaves the older facts of the rest."""

    kind = OperationKind.PROBE
    steps = [
        Step("connect", gettext_lazy("Connect"), connect, patience_s=20),
        Step("system", gettext_lazy("Read the system"), system, patience_s=30),
        Step("gpus", gettext_lazy("Read the GPUs"), gpus, patience_s=30),
        Step("pythons", gettext_lazy("Find Python versions"), pythons, patience_s=30),
        Step("environments", gettext_lazy("Find vLLM environments"), environments, patience_s=30),
        Step("models", gettext_lazy("Find models on disk"), models, patience_s=30),
        Step("configs", gettext_lazy("Read the models' shapes"), configs, patience_s=30),
        Step("flags", gettext_lazy("Read the flags of unknown versions"), flags, limit_s=900, patience_s=30),
    ]

    def succeeded(self, context: Context) -> None:
        Host.objects.filter(pk=context.host.pk).update(facts_at=timezone.now())


def merge_facts(host: Host, parts: dict[str, Any]) -> None:
    """Put parts into Host.facts; others may write other parts meanwhile. Refreshes the instance."""
    with transaction.atomic():
        row = Host.objects.select_for_update().only("facts").get(pk=host.pk)
        row.facts = {**row.facts, **parts}
        Host.objects.filter(pk=host.pk).update(facts=row.facts)
    host.facts = row.facts


def known_processes(host: Host) -> dict[str, Any]:
    """``markers`` and ``pids`` for mark_ours: what kvadmin started on this host, in this boot."""
    starts = EngineStart.objects.filter(engine__host=host).order_by("-pk")[:_STARTS_KNOWN]
    markers, pids = set(), set()
    for start in starts:
        markers.add(str(start.marker))
        if start.ended_at is None and start.boot_id and start.boot_id == host.boot_id:
            pids |= {process["pid"] for process in start.processes if "pid" in process}
            if start.pid:
                pids.add(start.pid)
    return {"markers": markers, "pids": pids}


def save_samples(host: Host, report: nvidia_smi.GpuReport) -> None:
    """One GpuSample per GPU of a reading."""
    now = timezone.now()
    GpuSample.objects.bulk_create(
        GpuSample(
            host=host,
            taken_at=now,
            index=gpu["index"],
            uuid=gpu["uuid"][:64],
            memory_total_mib=gpu["memory_total_mib"],
            memory_used_mib=gpu["memory_used_mib"],
            utilization=gpu["utilization_percent"],
            temperature=gpu["temperature_c"],
            power=gpu["power_w"],
        )
        for gpu in report.gpus
    )


def save_environments(host: Host, found: records.FoundEnvironments) -> None:
    """Bring the host's VllmEnvironment rows to what was found; what is gone is kept as unusable."""
    now = timezone.now()
    provisioning = (
        Operation.objects.active().filter(host=host, engine=None, kind=OperationKind.PROVISION).exists()
    )
    rows = {row.path: row for row in host.environments.all()}
    for one in found.environments:
        # an environment that is being made belongs to the operation that makes it
        if one.path not in rows and provisioning and one.path.startswith(f"{found.work_dir}/envs/"):
            continue
        note = ""
        if not one.complete:
            note = _("vLLM is not completely installed here.")
        elif not one.executable:
            note = _("There is no vllm command in this environment.")
        VllmEnvironment.objects.update_or_create(
            host=host,
            path=one.path,
            defaults={
                "version": one.version[:40],
                "python_version": one.python_version[:20],
                "executable": one.executable,
                "usable": not note,
                "note": note,
                "seen_at": now,
            },
        )
    gone = set(rows) - {one.path for one in found.environments}
    host.environments.filter(path__in=gone).update(
        usable=False, note=_("It was not found at the last probe of the host.")
    )


def _gib(disk: dict[str, Any]) -> int:
    return (disk["free_bytes"] or 0) // _GIB
