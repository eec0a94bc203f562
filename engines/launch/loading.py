"""The steps of a start after the launch: follow the log, then see that the engine answers from here."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from django.utils.translation import gettext_lazy

from engines.choices import EngineState
from engines.launch import remote, starting
from engines.launch.endpoint import Endpoint
from engines.launch.identity import identity_of, record, take_files
from engines.launch.scan import Scan
from engines.launch.tries import note_try
from engines.models import Engine, EngineStart
from engines.operations.base import Again, Context, Done, Step, StepFailed
from engines.ssh.errors import NOTHING_KNOWN, HostFileMissing
from engines.ssh.session import Session
from engines.states import touch_engine
from engines.vllm import log
from engines.vllm.failures import phase_text
from kvadmin.sentences import gettext as _
from kvadmin.sentences import pack

#: how long a model may load before the start is given up; a parameter of the operation
LOAD_LIMIT_S = 3600
#: how long an engine that says it is ready may be out of reach from here
REACH_LIMIT_S = 45
_PIECE = 262144


def load(context: Context) -> Done | Again:
    """Follow the start's own log until the server accepts requests, or the process is gone."""
    start = starting.begun_start(context)
    _as_loading(context, start)
    identity = identity_of(start)
    seen = remote.scan(context.session, [identity])
    fields = take_files(start, seen.files_of(identity))
    leader = seen.leader(identity)
    read_log(context.session, start, last=leader is None)
    if record(start, seen.members(identity)) or fields:
        fields.append("processes")
    start.save(update_fields=[*fields, "facts", "log_offset"])
    if leader is None:
        raise starting.give_up(context, start)
    health = Endpoint(context.engine.base_url, timeout_s=2).health()
    if health.status == 200:
        return Done(phase_text({"phase": "ready"}))
    if start.facts.get("listening"):
        return Done(phase_text(start.facts))
    _limit(context, start)
    return Again(2, phase_text(start.facts), progress=log.progress(start.facts))


def ready(context: Context) -> Done | Again:
    """Ready: /health is 200 and /v1/models lists the served name, asked at the service address."""
    start = starting.begun_start(context)
    engine = context.engine
    identity = identity_of(start)
    seen = remote.scan(context.session, [identity])
    if seen.leader(identity) is None:
        read_log(context.session, start, last=True)
        start.save(update_fields=["facts", "log_offset"])
        raise starting.give_up(context, start)
    endpoint = Endpoint(engine.base_url, engine.api_key)
    health = endpoint.health()
    if health.status != 200:
        return _not_yet(context, start, health.error or str(health.status))
    models = endpoint.models()
    if models.status in {401, 403}:
        refused = StepFailed(
            _("The engine refuses the key that kvadmin gave it."),
            code="key_refused",
            remedy=_("Remove --api-key and VLLM_API_KEY from the profile: each engine gets its own key."),
        )
        raise starting.give_up(context, start, refused)
    if models.status != 200:
        return _not_yet(context, start, str(models.status or ""))
    another = wrong_server(engine, start, models.names)
    if another:
        other = StepFailed(
            another,
            code="wrong_server",
            remedy=_("Check the host's service address and the engine's port."),
        )
        raise starting.give_up(context, start, other)
    note_ready(context.session, engine, start, seen, endpoint, models.names, models.max_model_len)
    engine.move(
        EngineState.READY,
        only_from=(
            EngineState.STARTING,
            EngineState.LOADING,
            EngineState.UNREACHABLE,
            EngineState.FAILED,
            EngineState.STOPPED,
        ),
        start=start,
        operation=context.operation,
    )
    return Done(
        _("It answers at %(url)s and serves %(names)s.")
        % {"url": engine.base_url, "names": ", ".join(models.names)}
    )


def wrong_server(engine: Engine, start: EngineStart, names: list[str]) -> str:
    """A sentence when what answers does not serve the start's name; else empty."""
    expected = start.revision.served_name if start.revision else ""
    if not expected or expected in names:
        return ""
    return _("Another server answers at %(url)s: it serves %(names)s, not %(expected)s.") % {
        "url": engine.base_url,
        "names": ", ".join(names) or "-",
        "expected": expected,
    }


def note_ready(
    session: Session,
    engine: Engine,
    start: EngineStart,
    seen: Scan,
    endpoint: Endpoint,
    names: list[str],
    max_model_len: int | None,
) -> None:
    """Write down what is known of an engine that is ready: processes, names, figures, findings."""
    if start.log_path and start.launched_at is not None:
        read_log(session, start, last=False)
    record(start, seen.members(identity_of(start)))
    start.facts["findings"] = [
        {**one, "text": pack(one["text"]), "remedy": pack(one["remedy"])}
        for one in findings(engine, endpoint, names[0] if names else "")
    ]
    start.ready_at = start.ready_at or timezone.now()
    start.tries, start.tried_at = 0, None
    start.vllm_version = start.facts.get("version") or start.vllm_version
    start.save(
        update_fields=["processes", "facts", "log_offset", "ready_at", "vllm_version", "tries", "tried_at"],
    )
    engine.served_names = names
    engine.max_model_len = max_model_len or start.facts.get("max_model_len")
    engine.vllm_version = start.vllm_version
    engine.answered_at = timezone.now()
    engine.save(update_fields=["served_names", "max_model_len", "vllm_version", "answered_at"])
    touch_engine(engine.pk)


def findings(engine: Engine, endpoint: Endpoint, model: str) -> list[dict[str, Any]]:
    """What callers without a key get out of this engine: {"code", "text", "remedy", "paths"} each."""
    if not engine.api_key or not model:
        return []
    served = endpoint.open_without_key(model)
    if not served:
        return []
    completions = [path for path in served if path != "/tokenize"]
    close = _(
        "Bind the engine to loopback or let a firewall pass only the gateway to port %(port)d: vLLM's key "
        "does not guard these paths."
    ) % {"port": engine.port}
    if completions:
        return [
            {
                "code": "open_completion_path",
                "text": _("Completions are served without the key at %(paths)s.")
                % {"paths": ", ".join(completions)},
                "remedy": close,
                "paths": served,
            }
        ]
    return [
        {
            "code": "open_path",
            "text": _("%(paths)s answers without the key.") % {"paths": ", ".join(served)},
            "remedy": close,
            "paths": served,
        }
    ]


def read_log(session: Session, start: EngineStart, *, last: bool) -> None:
    """Read on in the start's log from where the last look ended; changes the row, does not save it."""
    if not start.log_path:
        return
    for _piece in range(64):
        try:
            data = session.read_range(start.log_path, start.log_offset, _PIECE)
        except HostFileMissing:
            return
        whole = log.whole_lines(data, last=last and len(data) < _PIECE, limit=_PIECE)
        if not whole:
            return
        log.read(start.facts, data[:whole].decode("utf-8", "replace"))
        start.log_offset += whole
        if len(data) < _PIECE:
            return


def _as_loading(context: Context, start: EngineStart) -> None:
    if starting.resumed(context):
        context.engine.move(
            EngineState.LOADING,
            only_from=(
                EngineState.STARTING,
                EngineState.UNREACHABLE,
                EngineState.FAILED,
                EngineState.STOPPED,
            ),
            reason_code="found_again",
            reason=_("The engine was found running on its host."),
            start=start,
            operation=context.operation,
        )


def _limit(context: Context, start: EngineStart) -> None:
    limit = int(context.parameters.get("load_limit_s", LOAD_LIMIT_S))
    since = context.scratch.setdefault("loading_since", timezone.now().timestamp())
    if timezone.now().timestamp() - since > limit:
        at = phase_text(start.facts)
        late = StepFailed(
            _("The engine was not ready after %(limit)d s; it stood at: %(at)s") % {"limit": limit, "at": at},
            code="load_timeout",
            remedy=_("Look at the log: a slow disk or a download may need a longer limit."),
        )
        raise starting.give_up(context, start, late)


def _not_yet(context: Context, start: EngineStart, error: str) -> Again:
    since = context.scratch.setdefault("answering_since", timezone.now().timestamp())
    url = context.engine.base_url
    if timezone.now().timestamp() - since > context.parameters.get("reach_limit_s", REACH_LIMIT_S):
        deaf = StepFailed(
            _("The engine runs on its host, but %(url)s does not answer from here (%(error)s).")
            % {"url": url, "error": error},
            code="not_reachable_from_here",
            remedy=_("Check the host's service address, the engine's bind address and the firewall."),
        )
        if starting.resumed(context):
            # it may well serve others: that it cannot be heard from here is no reason to end it
            raise deaf
        raise starting.give_up(context, start, deaf)
    return Again(1.5, _("Waiting for an answer at %(url)s") % {"url": url}, progress=0.99)


START_STEPS = [
    Step("reach", gettext_lazy("Reach the host"), starting.reach, limit_s=180),
    Step("check", gettext_lazy("Check the host"), starting.check, limit_s=300),
    Step("prepare", gettext_lazy("Write the start's files"), starting.prepare, limit_s=180),
    Step("launch", gettext_lazy("Launch"), starting.launch, limit_s=180),
    Step("load", gettext_lazy("Load the model"), load, limit_s=6 * 3600, patience_s=300),
    Step("ready", gettext_lazy("Wait for an answer"), ready, limit_s=600),
]


def start_failed(context: Context, *, code: str, message: str) -> None:
    """The database's side of a start that failed.

    The engine is failed if the start was given up or never launched. Whatever else broke off its
    operation (a lost host, an error of kvadmin's) says nothing about the process: the engine is then
    unknown, and reconcile finds out.
    """
    engine = context.engine
    begun = context.parameters.get("resume") or context.scratch.get("start")
    start = EngineStart.objects.filter(pk=begun, ended_at=None).first()
    launched = start is not None and start.pid is not None and start.given_up_at is None
    unknown = launched or (start is not None and code in NOTHING_KNOWN)
    if starting.resumed(context):
        note_try(start)
    engine.move(
        EngineState.UNREACHABLE if unknown else EngineState.FAILED,
        only_from=(
            EngineState.STARTING,
            EngineState.LOADING,
            EngineState.STOPPING,
            EngineState.STOPPED,
            EngineState.FAILED,
            EngineState.UNREACHABLE,
        ),
        reason_code=code,
        reason=message,
        start=engine.current_start if begun else None,
        operation=context.operation,
    )
