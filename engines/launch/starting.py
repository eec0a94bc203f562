"""The steps of a start up to the launch: reach the host, check it, write the files, start once."""

from __future__ import annotations

import uuid

from django.db import transaction
from django.utils import timezone

from engines.choices import EngineState, Launcher
from engines.flag_lists import release_for
from engines.launch import remote
from engines.launch.checks import Need, refused, run_checks
from engines.launch.ending import close_start, end_leftovers, last_lines
from engines.launch.files import NotWritable, start_directory, unit_name
from engines.launch.flag_check import flag_check
from engines.launch.folders import prune
from engines.launch.identity import identity_of, take_files
from engines.launch.plan_check import plan_check
from engines.launch.preflight import PreflightIncomplete, parse_preflight
from engines.launch.scripts import script
from engines.models import Engine, EngineStart, Revision
from engines.operations.base import Context, Done, StepFailed
from engines.ssh.errors import HostUnreachable
from engines.states import touch_engine
from engines.vllm import log
from engines.vllm.command import serve_command, serve_environment
from engines.vllm.failures import explain
from engines.vllm.masking import mask_arguments
from engines.vllm.notes import Unreadable
from engines.vllm.spec import ServeSpec, parse_gpus
from kvadmin.crypto import new_secret
from kvadmin.sentences import gettext as _
from kvadmin.sentences import pack

_YES = {"1", "true", "yes", "on"}


def reach(context: Context) -> Done:
    """The host answers; kvadmin's folder there is made."""
    if resumed(context):
        return Done(_("The engine was found running; its start goes on."), skipped=True)
    try:
        work_dir = remote.absolute_work_dir(context.session, context.host.work_dir)
    except OSError as error:
        raise StepFailed(
            _("The folder %(path)s cannot be used on the host: %(error)s")
            % {"path": context.host.work_dir, "error": str(error)},
            code="work_dir",
            remedy=_("Make the folder writable for this user, or set another one for the host."),
        ) from error
    context.scratch["work_dir"] = work_dir
    return Done(_("%(host)s answers.") % {"host": context.host.name})


def check(context: Context) -> Done:
    """Everything that can be known before a start, each with a sentence and a remedy."""
    if resumed(context):
        return Done(skipped=True)
    engine = context.engine
    revision = _revision(engine)
    left = end_leftovers(context.session, engine)
    if left:
        context.log(_("Ended %(count)d processes that an earlier start had left.") % {"count": left})
    need = need_of(engine, revision.spec)
    spec = revision.spec
    result = context.session.run(
        script("preflight"),
        args=[
            need.executable,
            need.bind_address,
            str(need.port),
            need.model,
            _variable(spec, "HF_HOME"),
            _variable(spec, "HF_HUB_CACHE"),
            str(spec.values.get("download_dir") or ""),
            context.scratch["work_dir"],
        ],
        timeout_s=90,
    )
    try:
        facts = parse_preflight(result.stdout)
    except PreflightIncomplete as error:
        raise HostUnreachable(_("The connection was cut while the host was being checked.")) from error
    flags, translated = flag_check(spec, facts.version or need.version, context.host)
    checks = [*run_checks(facts, need), flags, *plan_check(spec, facts.version or need.version, context.host)]
    override = context.parameters.get("override", [])
    context.scratch["checks"] = [one.as_dict() for one in checks]
    for one in checks:
        waived = not one.ok and one.safe and one.code in override
        context.log(_("Overridden: %(text)s") % {"text": one.text} if waived else one.text)
    for text in translated:
        context.log(text)
    stop = refused(checks, override)
    if stop is not None:
        raise StepFailed(stop.text, code=stop.code, remedy=stop.remedy)
    if facts.version:
        context.scratch["vllm_version"] = facts.version
    return Done(_("%(count)d checks passed.") % {"count": len(checks)})


def need_of(engine: Engine, spec: ServeSpec) -> Need:
    """What a start of this engine asks of its host."""
    environment = engine.environment
    if environment is None:
        raise StepFailed(
            _("No vLLM environment is chosen for this engine."),
            code="environment_missing",
            remedy=_("Provision vLLM on the host, then choose that environment for the engine."),
        )
    fixed = spec.values.get("kv_cache_memory_bytes")
    old = environment.version.startswith(("0.6", "0.7", "0.8", "0.9", "0.1"))
    share = spec.values.get("gpu_memory_utilization") or (0.9 if old else 0.92)
    return Need(
        executable=environment.executable or f"{environment.path.rstrip('/')}/bin/vllm",
        bind_address=engine.bind_address,
        port=engine.port,
        model=spec.model,
        version=environment.version,
        gpus=parse_gpus(spec.gpus),
        cards=spec.cards,
        utilization=None if fixed else float(share),
        offline=_variable(spec, "HF_HUB_OFFLINE").lower() in _YES
        or _variable(spec, "TRANSFORMERS_OFFLINE").lower() in _YES,
    )


def prepare(context: Context) -> Done:
    """The start's row and its files on the host."""
    if resumed(context):
        return Done(skipped=True)
    engine = context.engine
    revision = _revision(engine)
    start = _begun(context) or _new_start(context, revision)
    need = need_of(engine, revision.spec)
    version = context.scratch.get("vllm_version") or need.version
    release = release_for(version)
    try:
        argv = serve_command(
            revision.spec,
            executable=need.executable,
            bind_address=engine.bind_address,
            port=engine.port,
            release=release,
        )
        remote.write_start(
            context.session,
            start.directory,
            argv=argv,
            variables=serve_environment(
                revision.spec, api_key=engine.api_key, marker=str(start.marker), release=release
            ),
        )
    except Unreadable as error:
        note = error.note
        raise StepFailed(
            _(note.message) % note.params,
            code=note.code,
            remedy=_(note.remedy) % note.params if note.remedy else "",
        ) from error
    except NotWritable as error:
        raise StepFailed(
            _("%(name)s cannot be passed to a process.") % {"name": error.name},
            code="environment_invalid",
            remedy=_("Correct the environment variables in the profile."),
        ) from error
    start.command = mask_arguments(argv, revision.spec.secrets.values())
    start.vllm_version = version
    start.save(update_fields=["command", "vllm_version"])
    pruned, problem = prune(context.session, engine)
    if pruned:
        context.log(_("Removed the folders of %(count)d earlier starts from the host.") % {"count": pruned})
    if problem:
        context.log(problem)
    return Done(_("The start's folder is %(path)s.") % {"path": start.directory})


def launch(context: Context) -> Done:
    """Start the wrapper, once: a repetition finds the first one's work."""
    if resumed(context):
        return Done(skipped=True)
    start = _begun(context)
    if start is None:
        raise StepFailed(_("The start's record is gone."), code="start_missing")
    answer = remote.launch(
        context.session,
        start.directory,
        marker=str(start.marker),
        want=context.parameters.get("launcher", "auto"),
        unit=start.unit,
    )
    _refuse(answer)
    identity = identity_of(start)
    seen = remote.scan(context.session, [identity])
    files = seen.files_of(identity)
    fields = take_files(start, files)
    if start.launched_at is None:
        start.launched_at = timezone.now()
        fields.append("launched_at")
    start.save(update_fields=fields)
    if files.pid is None and files.exit_status is None:
        raise StepFailed(
            _("The engine's process did not begin: %(note)s")
            % {"note": "; ".join(answer.notes) or _("the host gave no reason")},
            code="not_launched",
            remedy=_("Look at the disk and the limits of this user on the host, then start again."),
        )
    context.engine.move(
        EngineState.LOADING,
        only_from=(EngineState.STARTING, EngineState.UNREACHABLE),
        start=start,
        operation=context.operation,
    )
    how = _("as a systemd unit") if start.launcher == Launcher.SYSTEMD else _("in a session of its own")
    if not answer.fresh:
        context.log(_("It had been launched before the connection was cut."))
    return Done(_("Process %(pid)s runs %(how)s.") % {"pid": start.pid or "?", "how": how})


def _refuse(answer: remote.Launched) -> None:
    sentences = {
        "folder": (_("The start's folder is gone from the host."), _("Start the engine again.")),
        "setsid": (
            _("The host has neither a systemd user manager nor the setsid command."),
            _("Install util-linux on the host, or allow lingering: loginctl enable-linger."),
        ),
        "systemd": (
            _("The host's systemd user manager refused the unit: %(note)s")
            % {"note": "; ".join(answer.notes)},
            _("Allow lingering for this user: loginctl enable-linger."),
        ),
    }
    if answer.error in sentences:
        message, remedy = sentences[answer.error]
        raise StepFailed(message, code=f"launch_{answer.error}", remedy=remedy)


def give_up(context: Context, start: EngineStart, error: StepFailed | None = None) -> StepFailed:
    """End what is left of a start that failed, and write down why; the error to raise.

    Without ``error`` the cause is what the log tells. A server that somebody else started is not ended.
    What cannot be ended now is left to reconcile: the start is marked first, and closed only when none
    of its processes is left.
    """
    if start.launcher != Launcher.ADOPTED:
        start.given_up_at = start.given_up_at or timezone.now()
        start.save(update_fields=["given_up_at"])
        seen, left = remote.end_all(context.session, identity_of(start))
        if not left:
            close_start(start, seen, last_lines(context.session, start))
        for one in left:
            context.log(_("Process %(pid)d could not be ended.") % {"pid": one.pid})
    line = ""
    if error is None:
        found = log.cause(start.facts)
        code, message, remedy = explain(found, start.exit_status)
        error, line = StepFailed(message, code=code, remedy=remedy), found.line
    start.facts["cause"] = {
        "code": error.code,
        "line": line,
        "text": pack(error.message),
        "remedy": pack(error.remedy),
    }
    start.save(update_fields=["facts"])
    return error


def resumed(context: Context) -> bool:
    """Whether this operation takes up a start that was found running."""
    return "resume" in context.parameters


def _begun(context: Context) -> EngineStart | None:
    key = context.parameters.get("resume") or context.scratch.get("start")
    return EngineStart.objects.select_related("engine", "revision").filter(pk=key).first()


def begun_start(context: Context) -> EngineStart:
    """The start this operation is about; StepFailed when its row is gone."""
    start = _begun(context)
    if start is None:
        raise StepFailed(_("The start's record is gone."), code="start_missing")
    return start


def _new_start(context: Context, revision: Revision) -> EngineStart:
    engine = context.engine
    marker = uuid.uuid4()
    directory = start_directory(context.scratch["work_dir"], engine.pk, str(marker))
    with transaction.atomic():
        Engine.objects.select_for_update().get(pk=engine.pk)
        last = engine.starts.order_by("-number").first()
        start = EngineStart.objects.create(
            engine=engine,
            number=last.number + 1 if last else 1,
            marker=marker,
            revision=revision,
            unit=unit_name(engine.pk, str(marker)),
            directory=directory,
            log_path=f"{directory}/log",
            created_by=context.operation.requested_by,
        )
        engine.current_start = start
        if not engine.readable_key:
            # none yet, or one that no data key opens any more
            engine.api_key = new_secret()
        engine.save(update_fields=["current_start", "api_key"])
        context.scratch["start"] = start.pk
        context.operation.save(update_fields=["scratch"])
    touch_engine(engine.pk)
    return start


def _revision(engine: Engine) -> Revision:
    if engine.revision is None:
        raise StepFailed(
            _("This engine has no profile: kvadmin does not know how it was started."),
            code="revision_missing",
            remedy=_("Choose a profile for it first."),
        )
    return engine.revision


def _variable(spec: ServeSpec, name: str) -> str:
    return str(spec.secrets.get(name) or spec.environment.get(name) or "")
