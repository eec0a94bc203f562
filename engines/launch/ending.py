"""What a stop does on the host, and what is written down when a start has ended."""

from __future__ import annotations

from django.utils import timezone
from django.utils.translation import gettext_lazy

from engines.choices import EngineState
from engines.launch import remote
from engines.launch.identity import identity_of, take_files
from engines.launch.scan import Scan
from engines.launch.tries import note_try
from engines.models import Engine, EngineStart
from engines.operations.base import Again, Context, Done, Step, StepFailed
from engines.ssh.errors import NOTHING_KNOWN, HostFileDenied, HostFileMissing
from engines.ssh.session import Session
from engines.vllm.masking import mask_text
from kvadmin.crypto import SecretUnreadable
from kvadmin.sentences import gettext as _

#: seconds a leader gets after SIGTERM before it is killed
GRACE_S = 30
LAST_LINES = 50


def secrets_of(start: EngineStart) -> list[str]:
    """What must not be seen in anything copied from this start's log."""
    secrets = [start.engine.api_key]
    if start.revision is not None:
        secrets += start.revision.secrets.values()
    return [one for one in secrets if one]


def last_lines(session: Session, start: EngineStart, lines: int = LAST_LINES) -> str:
    """The end of the start's log, secrets masked; empty where it has none that can be read."""
    if not start.log_path:
        return ""
    try:
        text = remote.tail_text(session, start.log_path, lines)
    except (HostFileDenied, HostFileMissing):
        # a log that is gone must not keep a start from being closed
        return ""
    try:
        secrets = secrets_of(start)
    except SecretUnreadable:
        return _("The log's last lines are not kept here: a secret to be hidden in them cannot be read.")
    return mask_text(text, secrets)


def close_start(start: EngineStart, seen: Scan | None, text: str | None = None) -> None:
    """Write down that none of the start's processes is left."""
    fields = ["ended_at"]
    if seen is not None:
        fields += take_files(start, seen.files_of(identity_of(start)))
    start.ended_at = start.ended_at or timezone.now()
    if text is not None:
        start.last_lines = text
        fields.append("last_lines")
    start.save(update_fields=fields)


def end_leftovers(session: Session, engine: Engine) -> int:
    """End what earlier starts of the engine left behind; how many processes that were."""
    starts = list(engine.starts.order_by("-number")[:20])
    identities = [identity_of(start) for start in starts]
    seen = remote.scan(session, identities)
    found = {one.pid: one for identity in identities for one in seen.members(identity)}
    if found:
        remote.end(session, seen.boot_id, found.values())
        seen = remote.scan(session, identities)
    for start, identity in zip(starts, identities, strict=True):
        if start.ended_at is None and not seen.members(identity):
            close_start(start, seen)
    return len(found)


def find(context: Context) -> Done | Again:
    """Look for the processes; nothing there ends the stop."""
    context.engine.move(
        EngineState.STOPPING,
        only_from=(
            EngineState.READY,
            EngineState.DRAINING,
            EngineState.STARTING,
            EngineState.LOADING,
            EngineState.FAILED,
            EngineState.UNREACHABLE,
        ),
        start=context.engine.current_start,
        operation=context.operation,
    )
    start = _start(context)
    if start is None:
        return Done(_("The engine was never started."), skipped=True)
    seen = remote.scan(context.session, [identity_of(start)])
    members = seen.members(identity_of(start))
    changed = take_files(start, seen.files_of(identity_of(start)))
    if changed:
        start.save(update_fields=changed)
    if not members:
        return Done(_("No process of the engine is running."))
    for one in members:
        context.log(
            _("Process %(pid)d %(name)s (%(mib)d MiB)")
            % {"pid": one.pid, "name": one.name, "mib": one.rss * 4096 // 1048576}
        )
    context.scratch["pids"] = [one.pid for one in members]
    return Done(_("%(count)d processes belong to the engine.") % {"count": len(members)})


def terminate(context: Context) -> Done | Again:
    """Ask the leader to end, and wait for it; after the grace the next step ends it the hard way."""
    start = _start(context)
    if start is None:
        return Done(skipped=True)
    identity = identity_of(start)
    seen = remote.scan(context.session, [identity])
    leader = seen.leader(identity)
    if leader is None:
        return Done(_("The leading process has ended."))
    grace = int(context.parameters.get("grace_s", GRACE_S))
    asked = context.scratch.get("terminated")
    now = timezone.now().timestamp()
    if asked is None or asked["pid"] != leader.pid:
        remote.send_signal(context.session, seen.boot_id, [leader], "TERM")
        context.log(_("Sent SIGTERM to process %(pid)d.") % {"pid": leader.pid})
        context.scratch["terminated"] = {"pid": leader.pid, "at": now}
        return Again(0.5, _("Waiting for vLLM to end"))
    if now - asked["at"] < grace:
        return Again(1, _("Waiting for vLLM to end"))
    context.log(_("It did not end within %(grace)d s.") % {"grace": grace})
    return Done(_("It did not end by itself."))


def end_survivors(context: Context) -> Done | Again:
    """End whatever is left of the start, and make sure that nothing is."""
    start = _start(context)
    if start is None:
        return Done(skipped=True)
    identity = identity_of(start)
    seen = remote.scan(context.session, [identity])
    members = seen.members(identity)
    if not members:
        return Done(_("No process is left."))
    rounds = context.scratch.get("rounds", 0)
    if rounds >= 5:
        raise StepFailed(
            _("Process %(pid)d does not end, even after SIGKILL: it hangs in the kernel or the GPU driver.")
            % {"pid": members[0].pid},
            code="process_stuck",
            remedy=_("Look at dmesg on the host; most often only a restart of the host helps."),
        )
    context.scratch["rounds"] = rounds + 1
    context.log(
        _("Ending %(count)d remaining processes: %(pids)s")
        % {"count": len(members), "pids": ", ".join(str(one.pid) for one in members)}
    )
    remote.end(context.session, seen.boot_id, members)
    return Again(0.2, _("Ending the remaining processes"))


def verify(context: Context) -> Done | Again:
    """No process left, and none of theirs holds GPU memory; then the start is closed."""
    start = _start(context)
    if start is None:
        return Done(skipped=True)
    holding = remote.gpu_pids(context.session) & set(context.scratch.get("pids", []))
    if holding and context.scratch.get("gpu_waits", 0) < 15:
        context.scratch["gpu_waits"] = context.scratch.get("gpu_waits", 0) + 1
        return Again(2, _("Waiting for the driver to give the GPU memory back"))
    seen = remote.scan(context.session, [identity_of(start)])
    if seen.members(identity_of(start)):
        context.scratch["rounds"] = 0
        raise StepFailed(
            _("A process of the engine came back."),
            code="process_back",
            remedy=_("Look who starts it on the host, then stop the engine again."),
        )
    close_start(start, seen, last_lines(context.session, start))
    if start.exit_status is not None:
        return Done(_("Ended with exit status %(status)d.") % {"status": start.exit_status})
    return Done(_("Ended."))


STOP_STEPS = [
    Step("find", gettext_lazy("Find the processes"), find, limit_s=120),
    Step("terminate", gettext_lazy("Ask vLLM to end"), terminate, limit_s=900),
    Step("survivors", gettext_lazy("End what is left"), end_survivors, limit_s=300),
    Step("verify", gettext_lazy("Make sure that nothing is left"), verify, limit_s=120),
]


def stopped(context: Context) -> None:
    """The database's side of a stop that went well."""
    context.engine.move(
        EngineState.STOPPED,
        only_from=tuple(EngineState),
        start=context.engine.current_start,
        operation=context.operation,
    )


def stop_failed(context: Context, *, code: str, message: str) -> None:
    """Nobody knows what runs there (host lost, an error of kvadmin's), or something does that will not
    end; kvadmin tries that again by itself, later each time."""
    lost = code in NOTHING_KNOWN or code in {"internal_error", "step_timeout"}
    if code not in NOTHING_KNOWN:
        note_try(_start(context))
    context.engine.move(
        EngineState.UNREACHABLE if lost else EngineState.FAILED,
        only_from=(EngineState.STOPPING, EngineState.DRAINING, EngineState.READY),
        reason_code=code,
        reason=message,
        start=context.engine.current_start,
        operation=context.operation,
    )


def _start(context: Context) -> EngineStart | None:
    return context.engine.current_start
