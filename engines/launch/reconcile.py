"""Compares what engines should be with what their host shows, and mends the difference.

One look per host for all its engines. Safe to run twice at once: each engine is under an advisory lock,
and every change of state is a compare-and-set on what was seen before the look.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from django.db.models import F, Q
from django.utils import timezone

from engines.actions.start_engine import StartEngine
from engines.actions.stop_engine import StopEngine
from engines.choices import DesiredState, EngineState, HostState, Launcher, OperationKind
from engines.host_states import note_host_error
from engines.launch import remote
from engines.launch.decide import AT_REST, BACKOFF_S, Act, Change, Seen, decide, failures_in_a_row
from engines.launch.ending import close_start, last_lines
from engines.launch.endpoint import Answer, Endpoint
from engines.launch.identity import identity_of, record, take_files
from engines.launch.loading import note_ready, read_log, wrong_server
from engines.launch.scan import Scan
from engines.launch.tries import note_try, too_early, used_up
from engines.models import Engine, EngineStart, Host
from engines.operations.begin import begin_operation
from engines.operations.runner import advisory_lock
from engines.ssh.errors import HostError
from engines.ssh.session import Session, session_for
from engines.states import note_reason
from engines.vllm import log
from engines.vllm.failures import explain
from kvadmin.actions import ActionError, Actor
from kvadmin.crypto import SecretUnreadable
from kvadmin.sentences import gettext as _
from kvadmin.sentences import pack, unpack

logger = logging.getLogger(__name__)

HOST_LOCK = 7102
ENGINE_LOCK = 7103
#: looks in a row that must fail before an engine counts as unreachable
MISSES = 3
#: exit statuses of a vLLM that was asked to end
_ASKED_TO_END = {0, 130, 143}
_TAIL = 65536
_HTTP_REASONS = frozenset({"unhealthy", "not_answering", "secret_unreadable"})
_ACTIVE = (
    EngineState.STARTING,
    EngineState.LOADING,
    EngineState.READY,
    EngineState.DRAINING,
    EngineState.STOPPING,
)

Connect = Callable[[Host], Session]


def hosts_to_reconcile() -> list[int]:
    """Hosts that have an engine which was ever started or adopted.

    Not those that keep refusing to sign us in: every try brings a lock of the account or a ban nearer.
    """
    refused = Q(host__state=HostState.REFUSED) | Q(host__jump__state=HostState.REFUSED)
    engines = Engine.objects.exclude(current_start=None).exclude(refused, host__misses__gte=MISSES)
    return list(engines.order_by("host").values_list("host", flat=True).distinct())


def reconcile_host(host_id: int, *, connect: Connect = session_for) -> bool:
    """One look at one host and what follows from it. False when another one is looking already."""
    with advisory_lock(HOST_LOCK, host_id) as got:
        if not got:
            return False
        host = Host.objects.filter(pk=host_id).first()
        if host is None:
            return False
        engines = list(
            host.engines.exclude(current_start=None).select_related(
                "host", "revision", "environment", "current_start", "current_start__revision"
            )
        )
        for engine in engines:
            engine.current_start.engine = engine
        try:
            session = connect(host)
            earlier = _earlier_starts(host)
            starts = [*(engine.current_start for engine in engines), *earlier]
            seen = remote.scan(session, [identity_of(start) for start in starts])
        except HostError as error:
            _missed(host, engines, error)
            return True
        Host.objects.filter(pk=host.pk).update(misses=0, boot_id=seen.boot_id, last_seen_at=timezone.now())
        answers = _ask(engines, seen)
        for engine in engines:
            act, answer = _act(engine, seen), answers.get(engine.pk)
            if _nothing_new(engine, act, seen, answer):
                continue
            with advisory_lock(ENGINE_LOCK, engine.pk) as mine:
                if mine and _unchanged(engine):
                    _reconcile_engine(session, engine, act, seen, answer)
        _end_strays(session, host, seen, earlier)
        return True


def _unchanged(engine: Engine) -> bool:
    """Nothing has happened to the engine since the look, and no operation is looking after it."""
    now = Engine.objects.filter(pk=engine.pk).values("observed", "current_start_id", "desired").first()
    return (
        now is not None
        and now["observed"] == engine.observed
        and now["current_start_id"] == engine.current_start_id
        and now["desired"] == engine.desired
        and not engine.operations.active().exists()
    )


def _missed(host: Host, engines: list[Engine], error: HostError) -> None:
    Host.objects.filter(pk=host.pk).update(misses=F("misses") + 1)
    if host.misses + 1 < MISSES:
        return
    note_host_error(host, error)
    for engine in engines:
        with advisory_lock(ENGINE_LOCK, engine.pk) as mine:
            if mine and _unchanged(engine):
                _move(
                    engine,
                    EngineState.UNREACHABLE,
                    only_from=_ACTIVE,
                    reason_code=error.code,
                    reason=error.message,
                    start=engine.current_start,
                )


def _move(engine: Engine, to: EngineState, *, only_from: tuple[EngineState, ...], **why: Any) -> bool:
    """Engine.move from the state that was seen before the look, and from no other."""
    seen = EngineState(engine.observed)
    return seen in only_from and engine.move(to, only_from=(seen,), **why)


def _seen_of(engine: Engine, seen: Scan) -> Seen:
    identity = identity_of(engine.current_start)
    files = seen.files_of(identity)
    leader = seen.leader(identity)
    wrapper = (files.wrapper, files.wrapper_ticks)
    members = [one for one in seen.members(identity) if leader is None or one.pid != leader.pid]
    return Seen(
        same_boot=(identity.boot_id or files.boot_id or seen.boot_id) == seen.boot_id,
        leader=leader is not None,
        wrapper=any((one.pid, one.ticks) == wrapper for one in members),
        others=sum((one.pid, one.ticks) != wrapper for one in members),
    )


def _ask(engines: list[Engine], seen: Scan) -> dict[int, Answer]:
    """/health of every engine that may be serving, side by side."""
    asked = [
        engine
        for engine in engines
        if _act(engine, seen) == Act.ASK and seen.leader(identity_of(engine.current_start)) is not None
    ]
    if not asked:
        return {}
    with ThreadPoolExecutor(max_workers=min(8, len(asked))) as pool:
        answers = pool.map(lambda engine: Endpoint(engine.base_url, timeout_s=4).health(), asked)
        return {engine.pk: answer for engine, answer in zip(asked, answers, strict=True)}


def _act(engine: Engine, seen: Scan) -> Act:
    start = engine.current_start
    return decide(
        engine.observed,
        seen=_seen_of(engine, seen),
        ended=start.ended_at is not None,
        given_up=start.given_up_at is not None,
        was_ready=start.ready_at is not None or _listens_unheard(engine, start),
        stop_asked=_stop_asked(engine, start),
        adopted=start.launcher == Launcher.ADOPTED,
    )


def _listens_unheard(engine: Engine, start: EngineStart) -> bool:
    """Its start went as far as the log goes, but it could not be heard from here: only that is left."""
    return engine.observed == EngineState.UNREACHABLE and bool(start.facts.get("listening"))


def _nothing_new(engine: Engine, act: Act, seen: Scan, answer: Answer | None) -> bool:
    """An engine as it should be, at rest or serving: most are, and they cost no lock and no query."""
    if act == Act.NOTHING:
        return not engine.keep_running
    return (
        act == Act.ASK
        and answer is not None
        and answer.status == 200
        and engine.observed == EngineState.READY
        and engine.reason_code not in _HTTP_REASONS
        and engine.current_start.processes
        == [one.record for one in seen.members(identity_of(engine.current_start))]
    )


def _reconcile_engine(session: Session, engine: Engine, act: Act, seen: Scan, answer: Answer | None) -> None:
    start = engine.current_start
    fields = take_files(start, seen.files_of(identity_of(start)))
    if fields:
        start.save(update_fields=fields)
    if act in {Act.RESUME, Act.STOP, Act.END_SURVIVORS} and _waits(engine, act):
        return
    try:
        _do(act, session, engine, seen, answer)
    except HostError as error:
        # what could not be done now is found again at the next look
        logger.warning("engine %s: %s: %s", engine.pk, act, error.message)
        return
    except ActionError as error:
        logger.info("engine %s: %s: %s", engine.pk, act, error.message)
        return
    except SecretUnreadable as error:
        logger.error("engine %s: %s: %s", engine.pk, act, error)
        note_reason(engine, "secret_unreadable", _key_unreadable(engine))
        return
    if act in {Act.NOTHING, Act.ENDED, Act.REBOOTED, Act.CLOSE}:
        keep_running(engine)


def _key_unreadable(engine: Engine) -> str:
    if engine.current_start.launcher == Launcher.ADOPTED:
        return _(
            "Its API key is stored, but cannot be read with the present data key. Remove the engine, which "
            "leaves its server alone, and adopt it again with the key."
        )
    return _(
        "Its API key is stored, but cannot be read with the present data key. Restart the engine: it then "
        "gets a new key."
    )


def _waits(engine: Engine, act: Act) -> bool:
    """After tries in vain: whether the next one is not due. What does not end is left to a person."""
    start = engine.current_start
    if act == Act.RESUME or not used_up(start):
        return too_early(start)
    if engine.reason_code != "does_not_end":
        note_reason(
            engine,
            "does_not_end",
            _(
                "Its processes did not end in %(count)d tries, and kvadmin does not try again by itself. "
                "Look at dmesg on the host, restart the host if need be, or stop the engine again. "
                "Last: %(reason)s"
            )
            % {"count": start.tries, "reason": engine.reason},
        )
    return True


def _do(act: Act, session: Session, engine: Engine, seen: Scan, answer: Answer | None) -> None:
    start = engine.current_start
    match act:
        case Act.ASK if answer is not None:
            _answered(session, engine, seen, answer)
        case Act.RESUME:
            begin_operation(
                OperationKind.START,
                actor=Actor.system(),
                host=engine.host,
                engine=engine,
                parameters={"resume": start.pk},
            )
        case Act.STOP:
            StopEngine(Actor.system(), engine).run()
        case Act.END_SURVIVORS:
            after, left = remote.end_all(session, identity_of(start))
            if left:
                _stuck(engine, left[0].pid)
            elif engine.observed in AT_REST:
                _close(session, engine, after)
            else:
                _ended(session, engine, after)
        case Act.ENDED:
            _ended(session, engine, seen)
        case Act.REBOOTED:
            _rebooted(session, engine)
        case Act.CLOSE:
            _close(session, engine, seen)


def _close(session: Session, engine: Engine, seen: Scan) -> None:
    """Nothing is left of an engine at rest; one that would not end when it was stopped is stopped now."""
    start = engine.current_start
    close_start(start, seen, last_lines(session, start))
    if _stop_asked(engine, start):
        _move(engine, EngineState.STOPPED, only_from=(EngineState.FAILED,), start=start)


def _stuck(engine: Engine, pid: int) -> None:
    start = engine.current_start
    note_try(start)
    _move(
        engine,
        EngineState.FAILED,
        only_from=_LEFT,
        reason_code="process_stuck",
        reason=_("Process %(pid)d does not end, even after SIGKILL.") % {"pid": pid},
        start=start,
    )


def _stop_asked(engine: Engine, start: EngineStart) -> bool:
    if engine.desired != DesiredState.STOPPED:
        return False
    if engine.observed == EngineState.STOPPING:
        # also of a start that was cancelled and whose worker died before the stop was begun
        return True
    ordered = [OperationKind.STOP, OperationKind.DRAIN]
    return engine.operations.filter(kind__in=ordered, created_at__gte=start.created_at).exists()


def _answered(session: Session, engine: Engine, seen: Scan, answer: Answer) -> None:
    """The process lives; what it says over HTTP decides between ready and a reason."""
    start = engine.current_start
    if record(start, seen.members(identity_of(start))):
        start.save(update_fields=["processes"])
    if answer.status == 200:
        if start.ready_at is None:
            endpoint = Endpoint(engine.base_url, engine.api_key)
            models = endpoint.models()
            if models.status != 200:
                note_reason(engine, "not_answering", _("It does not list its models for kvadmin's key."))
                return
            another = wrong_server(engine, start, models.names)
            if another:
                note_reason(engine, "wrong_server", another)
                return
            note_ready(session, engine, start, seen, endpoint, models.names, models.max_model_len)
        if (
            not _move(
                engine,
                EngineState.READY,
                only_from=_NOT_READY,
                reason_code="answers_again",
                reason=_("The same process answers again."),
                start=start,
            )
            and engine.reason_code in _HTTP_REASONS
        ):
            note_reason(engine, "", "")
        return
    if answer.status is not None:
        code, text = "unhealthy", _("It answers /health with %(status)d.") % {"status": answer.status}
    else:
        code = "not_answering"
        text = _("Its process runs, but %(url)s does not answer (%(error)s).") % {
            "url": engine.base_url,
            "error": answer.error,
        }
    note_reason(engine, code, text)


def _ended(session: Session, engine: Engine, seen: Scan) -> None:
    """Nothing is left of the start: write down how it ended, and what that makes of the engine."""
    start = engine.current_start
    was_ready = start.ready_at is not None
    cause = _cause(session, start, was_ready)
    close_start(start, seen, last_lines(session, start))
    if _stop_asked(engine, start):
        _move(engine, EngineState.STOPPED, only_from=_LEFT, start=start)
        return
    if start.exit_status in _ASKED_TO_END and was_ready:
        _move(
            engine,
            EngineState.STOPPED,
            only_from=_LEFT,
            reason_code="ended_outside",
            reason=_("It was ended on the host, not from here (exit status %(status)d).")
            % {"status": start.exit_status},
            start=start,
        )
        return
    code, message, remedy = explain(cause, start.exit_status)
    if start.given_up_at is not None and "cause" in start.facts:
        # why it was given up says more than the log of an engine that was then ended
        known = start.facts["cause"]
        code, message, remedy = known["code"], unpack(known["text"]), unpack(known["remedy"])
    start.facts["cause"] = {
        "code": code,
        "line": cause.line,
        "text": pack(message),
        "remedy": pack(remedy),
    }
    start.save(update_fields=["facts"])
    _move(engine, EngineState.FAILED, only_from=_LEFT, reason_code=code, reason=message, start=start)


_LEFT = (*_ACTIVE, EngineState.UNREACHABLE)
_NOT_READY = tuple(state for state in EngineState if state != EngineState.READY)


def _cause(session: Session, start: EngineStart, was_ready: bool) -> log.Cause:
    """Why it ended: from the whole log for a start, from the log's end for one that had served."""
    if start.launcher == Launcher.ADOPTED and not start.log_path:
        return log.Cause("unknown", "", {})
    if was_ready:
        return log.cause(log.read({}, remote.tail_text(session, start.log_path, 400, _TAIL)))
    read_log(session, start, last=True)
    start.save(update_fields=["facts", "log_offset"])
    return log.cause(start.facts)


def _rebooted(session: Session, engine: Engine) -> None:
    """The host was restarted: nothing of the start can be left."""
    start = engine.current_start
    close_start(start, None, last_lines(session, start))
    if not engine.keep_running and engine.desired == DesiredState.RUNNING:
        Engine.objects.filter(pk=engine.pk).update(desired=DesiredState.STOPPED)
        engine.desired = DesiredState.STOPPED
    _move(
        engine,
        EngineState.STOPPED,
        only_from=_LEFT,
        reason_code="host_rebooted",
        reason=_("Its host was restarted."),
        start=start,
    )


def _earlier_starts(host: Host) -> list[EngineStart]:
    """Starts on this host, not adopted, whose engine has moved on before nothing was left of them."""
    starts = EngineStart.objects.filter(engine__host=host, ended_at=None)
    return list(
        starts.exclude(launcher=Launcher.ADOPTED)
        .exclude(engine__current_start=F("pk"))
        .select_related("engine")
    )


def _end_strays(session: Session, host: Host, seen: Scan, earlier: list[EngineStart]) -> None:
    """Processes of earlier starts of engines on this host, whose engine has moved on."""
    marked = (
        EngineStart.objects.filter(marker__in=seen.markers(), engine__host=host)
        .exclude(engine__current_start=F("pk"))
        .exclude(pk__in=[start.pk for start in earlier])
        .select_related("engine")
    )
    for start in [*earlier, *marked]:
        if used_up(start) or too_early(start) or start.engine.operations.active().exists():
            continue
        try:
            after, left = remote.end_all(session, identity_of(start))
        except HostError as error:
            logger.warning("start %s: %s", start.pk, error.message)
            continue
        if left:
            logger.warning("processes that start %s had left do not end", start.pk)
            note_try(start)
        else:
            close_start(start, after)


def keep_running(engine: Engine) -> None:
    """Start an engine again that should be running, later each time, and not for ever."""
    if not engine.keep_running:
        return
    engine.refresh_from_db(fields=["observed", "desired", "keep_running", "reason_code", "state_at"])
    if (
        not engine.keep_running
        or engine.desired != DesiredState.RUNNING
        or engine.observed not in {EngineState.FAILED, EngineState.STOPPED}
        or engine.reason_code == "flapping"
        or engine.operations.active().exists()
    ):
        return
    rows = engine.transitions.select_related("operation")[:60]
    changes = [
        Change(
            to=row.to_state,
            at=row.at.timestamp(),
            by_person=row.operation is not None and row.operation.source != "system",
            crash=row.to_state == EngineState.FAILED or row.reason_code == "ended_outside",
        )
        for row in rows
    ]
    crashes = failures_in_a_row(changes, timezone.now().timestamp())
    if crashes > len(BACKOFF_S):
        note_reason(
            engine,
            "flapping",
            _("It failed %(count)d times in a row and is not started again by itself. Last: %(reason)s")
            % {"count": crashes, "reason": engine.reason},
        )
        return
    wait = timedelta(seconds=BACKOFF_S[crashes - 1] if crashes else 0)
    if timezone.now() - engine.state_at < wait:
        return
    try:
        StartEngine(Actor.system(), engine).run()
    except ActionError as error:
        logger.info("engine %s is not started again: %s", engine.pk, error.message)
