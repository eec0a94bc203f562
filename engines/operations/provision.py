"""Provisioning: a virtual environment with one vLLM version on a host, made by detached jobs.

parameters: version, variant (cuda, cpu), source (index, wheels), python (path or ""), existing (a folder
to register instead of making one, or ""), despite_driver. The jobs outlive the connection and the
worker; a later operation for the same environment follows one that is still running.
"""

from __future__ import annotations

import json
import re
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy

from engines.choices import OperationKind
from engines.models import VllmEnvironment
from engines.models.host import VllmEnvironmentSource
from engines.operations.base import Again, Context, Done, Flow, Step, StepFailed, register
from engines.provision import scripts, versions, words
from engines.provision.detached import DetachedJob, JobLook, JobNotStarted, JobState
from engines.provision.facts import parse_check, parse_pairs
from engines.provision.job import MARKER
from engines.provision.judge import judge
from engines.provision.pip_output import PipProgress, classify_failure, last_error
from kvadmin.sentences import gettext as _
from kvadmin.sentences import joined

#: a lost job (the host restarted, something killed it) is launched again this often
MOST_LAUNCHES = 3
_LOOK_S = 2.0
_TAIL_LINES = 40
_CREDENTIALS = re.compile(r"://[^/@\s]+@")


def environment_name(version: str, variant: str) -> str:
    return f"vllm-{version}" + ("-cpu" if variant == "cpu" else "")


def environment_folder(context: Context) -> str:
    return context.scratch["folder"]


def _check(context: Context) -> Done:
    if context.parameters.get("existing"):
        return _inspect(context)
    parameters, host = context.parameters, context.host
    version, variant = parameters["version"], parameters["variant"]
    name = environment_name(version, variant)
    result = context.session.run(
        scripts.CHECK,
        args=[
            host.work_dir,
            name,
            host.wheel_dir if parameters["source"] == "wheels" else "",
            parameters.get("python", ""),
        ],
        timeout_s=60,
    )
    found = parse_check(result.stdout)
    context.scratch["folder"] = f"{found.work}/envs/{name}"
    context.scratch["jobs_folder"] = f"{found.work}/jobs"
    if found.environment == "complete":
        context.scratch["present"] = True
        return Done(_("The environment is there already; it is verified again."))
    problems, python = judge(
        found,
        version=version,
        variant=variant,
        source=parameters["source"],
        despite_driver=bool(parameters.get("despite_driver")),
    )
    for problem in problems:
        message, remedy = words.problem_words(problem)
        context.log(joined(message, remedy))
    blocking = [problem for problem in problems if problem.blocks]
    if blocking or python is None:
        message, remedy = words.problem_words(blocking[0])
        others = [words.problem_words(problem)[0] for problem in blocking[1:]]
        raise StepFailed(joined(message, *others), code=blocking[0].code, remedy=remedy)
    context.scratch["python"] = python.path
    context.scratch["how"] = python.how if python.how != "none" else "uv"
    context.scratch["uv"] = found.uv
    context.scratch["wheel_path"] = found.wheel_path
    _take_over(context, found.begun_by)
    return Done(_("Python %(version)s at %(path)s.") % {"version": python.version, "path": python.path})


def _take_over(context: Context, begun_by: str) -> None:
    """Follow the jobs of an earlier operation that still install, or did and were not yet verified.

    Any other that still runs is ended: two must not write into one environment.
    """
    own = str(context.operation.uuid)
    if begun_by in {"", own} or not MARKER.fullmatch(begun_by):
        return
    earlier = _job(context, "install", owner=begun_by)
    look = earlier.look()
    unverified = _job(context, "verify", owner=begun_by).look().state is JobState.NONE
    waiting = look.status == 0 and unverified
    if look.state in {JobState.RUNNING, JobState.STARTING} or waiting:
        context.scratch["owner"] = begun_by
        context.log(_("An earlier operation began this installation and it goes on: following it."))
    else:
        DetachedJob(context.session, earlier.folder, begun_by).end()


def _inspect(context: Context) -> Done:
    """A folder that is said to hold vLLM: what is in it."""
    result = context.session.run(scripts.INSPECT, args=[context.parameters["existing"]], timeout_s=60)
    found = parse_pairs(result.stdout)
    path = found.get("path", context.parameters["existing"])
    if problem := found.get("problem"):
        message, remedy = words.inspect_words(problem, path)
        raise StepFailed(message, code=problem, remedy=remedy)
    context.scratch.update(
        folder=path,
        present=True,
        jobs_folder=context.session.run(
            'case $1 in "~") w=$HOME ;; "~/"*) w=$HOME/${1#??} ;; *) w=$1 ;; esac; printf %s "$w/jobs"',
            args=[context.host.work_dir],
        ).stdout,
    )
    return Done(_("vLLM %(version)s in %(path)s.") % {"version": found.get("version", "?"), "path": path})


def _make(context: Context) -> Done | Again:
    if context.scratch.get("present"):
        return Done(skipped=True)
    scratch = context.scratch
    command = [
        *_sh(scripts.MAKE_ENVIRONMENT),
        scratch["folder"],
        scratch["python"],
        scratch["how"],
        scratch["uv"],
        str(context.operation.uuid),
    ]
    look = _follow(context, "environment", command)
    if isinstance(look, Again):
        return look
    if look.status != 0:
        _fail_install(context, "environment", look.status or 1)
    return Done(scratch["folder"])


def _install(context: Context) -> Done | Again:
    if context.scratch.get("present"):
        return Done(skipped=True)
    parameters = context.parameters
    folder, version = environment_folder(context), parameters["version"]
    options = pip_options(context)
    if parameters["variant"] == "cpu":
        extra = "" if parameters["source"] == "wheels" else settings.ENV.torch_index
        torch = versions.CPU_TORCH.get(version, "")
        command = [*_sh(scripts.INSTALL_CPU), folder, version, torch, extra, *options]
    else:
        command = [*_sh(scripts.INSTALL), folder, f"vllm=={version}", *options]
    look = _follow(context, "install", command)
    if isinstance(look, Again):
        return look
    if look.status != 0:
        _fail_install(context, "install", look.status or 1)
    return Done(words.progress_words(_progress(context)))


def _verify(context: Context) -> Done | Again:
    folder = environment_folder(context)
    look = _follow(context, "verify", [*_sh(scripts.VERIFY), folder])
    if isinstance(look, Again):
        return Again(look.after, _("vLLM says its version; the first time that loads much."), look.progress)
    said = "\n".join(_state(context, "verify")["tail"])
    if look.status != 0:
        raise StepFailed(
            _("vLLM is installed but does not start: %(said)s") % {"said": last_error(said)},
            code="not_usable",
            remedy=_("The log below has what it printed. A driver or library may be missing on the host."),
        )
    found = parse_pairs(said)
    if not context.parameters.get("existing"):
        content = json.dumps(
            {
                "version": found.get("metadata", ""),
                "variant": context.parameters["variant"],
                "python": found.get("python", ""),
                "operation": str(context.operation.uuid),
            }
        )
        context.session.run(scripts.COMPLETE, args=[folder], stdin=content.encode())
    context.scratch["environment"] = {
        "path": folder,
        "version": found.get("metadata", ""),
        "python": found.get("python", ""),
    }
    return Done(_("vLLM %(version)s answers.") % {"version": found.get("metadata", "?")})


def pip_options(context: Context) -> list[str]:
    """Options of pip install that follow from the host's settings; they hold no credentials."""
    host = context.host
    if context.parameters["source"] == "wheels":
        return ["--no-index", "--find-links", context.scratch["wheel_path"]]
    options = ["--index-url", host.index_url] if host.index_url else []
    return options + (["--proxy", host.proxy] if host.proxy else [])


def _sh(script: str) -> list[str]:
    return ["sh", "-c", script, "kvadmin"]


def _job(context: Context, name: str, owner: str = "") -> DetachedJob:
    own = str(context.operation.uuid)
    owner = owner or (own if name == "verify" else context.scratch.get("owner", own))
    return DetachedJob(
        session=context.session,
        folder=f"{context.scratch['jobs_folder']}/{owner}/{name}",
        marker=f"{owner}.{name}",
    )


def _state(context: Context, name: str) -> dict[str, Any]:
    """What is kept of a job between ticks: log offset, launches, the log's last lines."""
    jobs = context.scratch.setdefault("jobs", {})
    return jobs.setdefault(name, {"offset": 0, "launches": 0, "tail": [], "pip": {}})


def _progress(context: Context) -> PipProgress:
    return PipProgress.from_dict(_state(context, "install")["pip"])


def _follow(context: Context, name: str, command: list[str]) -> JobLook | Again:
    """Launch a job, or look at it; its JobLook once it exited."""
    job, state = _job(context, name), _state(context, name)
    look = job.look()
    if look.state is JobState.LOST:
        _read_log(context, job, name)
        if state["launches"] >= MOST_LAUNCHES:
            raise StepFailed(
                _("The job on the host was ended from outside %(count)d times.") % {"count": MOST_LAUNCHES},
                code="job_lost",
                remedy=_("Look for the reason in the host's system log, then provision again."),
            )
        context.log(_("The job on the host is gone without an exit status: starting it again."))
        job.reset()
    if look.state in {JobState.LOST, JobState.NONE}:
        try:
            job.launch(command)
        except JobNotStarted as error:
            raise StepFailed(
                _("No job can be started on the host: %(reason)s")
                % {
                    "reason": _("the command setsid is missing (package util-linux)")
                    if error.code == "nosetsid"
                    else _("its folder cannot be written")
                },
                code=f"job_{error.code}",
                remedy=_("Mend that on the host, then provision again."),
            ) from error
        state["launches"] += 1
        return Again(1.0)
    _read_log(context, job, name)
    if look.state is JobState.EXITED:
        return look
    if name != "install":
        return Again(_LOOK_S)
    progress = _progress(context)
    expected = versions.DOWNLOAD_EXPECTED[context.parameters["variant"]]
    return Again(_LOOK_S, words.progress_words(progress), progress.fraction(expected))


def _read_log(context: Context, job: DetachedJob, name: str) -> None:
    """Take over what the job's log has gained; progress lines are understood, not kept."""
    state = _state(context, name)
    progress = PipProgress.from_dict(state["pip"])
    while (context.session.size(job.log_path) or 0) > state["offset"]:
        lines, offset = job.new_lines(state["offset"])
        if offset == state["offset"]:
            break
        state["offset"] = offset
        for line in lines:
            if progress.feed(line):
                shown = _CREDENTIALS.sub("://****@", line.rstrip())[:2000]
                context.log(shown)
                state["tail"] = [*state["tail"], shown][-_TAIL_LINES:]
    state["pip"] = progress.as_dict()


def _fail_install(context: Context, name: str, status: int) -> None:
    tail = "\n".join(_state(context, name)["tail"])
    code = classify_failure(tail, status)
    message, remedy = words.failure_words(
        code, version=context.parameters["version"], status=status, said=last_error(tail)
    )
    raise StepFailed(message, code=code, remedy=remedy)


@register
class Provision(Flow):
    """Check, make the environment, install, verify; then the environment's row."""

    kind = OperationKind.PROVISION
    steps = [
        Step("check", gettext_lazy("Check the host"), _check, limit_s=300),
        Step("environment", gettext_lazy("Make the environment"), _make, limit_s=900, patience_s=1800),
        Step("install", gettext_lazy("Install packages"), _install, limit_s=6 * 3600, patience_s=1800),
        Step("verify", gettext_lazy("Verify"), _verify, limit_s=1200, patience_s=1800),
    ]

    def succeeded(self, context: Context) -> None:
        made = context.scratch["environment"]
        existing = bool(context.parameters.get("existing"))
        source = VllmEnvironmentSource.FOUND if existing else VllmEnvironmentSource.PROVISIONED
        VllmEnvironment.objects.update_or_create(
            host=context.host,
            path=made["path"],
            defaults={
                "executable": f"{made['path']}/bin/vllm",
                "version": made["version"] or context.parameters["version"],
                "python_version": made["python"],
                "source": source,
                "usable": True,
                "note": "",
                "seen_at": timezone.now(),
            },
        )

    def failed(self, context: Context, *, code: str, message: str, remedy: str) -> None:
        # an unreachable host's job goes on and the next try follows it
        if code not in {"host_unreachable", "command_timeout"}:
            self._end_jobs(context, remove=False)

    def cancelled(self, context: Context) -> None:
        self._end_jobs(context, remove=True)

    @staticmethod
    def _end_jobs(context: Context, *, remove: bool) -> None:
        from engines.tasks.provision import end_jobs

        operation_id = context.operation.pk
        if context.scratch.get("jobs"):
            transaction.on_commit(lambda: end_jobs.delay(operation_id, remove=remove))
