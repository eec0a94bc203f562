"""The demo's steps: this machine, a vLLM for CPUs, a small model, a profile, an engine, a chart.

Each step looks first at what is there, so a second run starts within the engine's own start time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.utils.translation import gettext as _

from engines.actions.add_host import AddHost
from engines.actions.change_engine import ChangeEngine
from engines.actions.create_engine import CreateEngine
from engines.actions.probe_host import ProbeHost
from engines.actions.provision_vllm import ProvisionVllm
from engines.actions.save_profile import SaveProfile
from engines.actions.start_engine import StartEngine
from engines.actions.stop_engine import StopEngine
from engines.choices import EngineState, HostKind, HostState, OperationState
from engines.models import Engine, Host, Operation, Profile, Revision, VllmEnvironment
from engines.ssh.session import session_for
from kvadmin.actions import Actor

VLLM_VERSION = "0.32.0"
NAME = "tiny-qwen3-demo"
#: pages of the pool: few enough that a handful of requests can be seen in the chart (128 tokens each)
PAGES = 96
VALUES = {"max_model_len": 2048, "max_num_seqs": 16, "enforce_eager": True}
EXTRA = f"--num-gpu-blocks-override {PAGES}"
VARIABLES = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
#: $1 the environment's Python, $2 the folder; prints the folder's whole path
_MAKE_MODEL = r"""
set -eu
case $2 in "~/"*) folder=$HOME/${2#"~/"};; *) folder=$2;; esac
if [ ! -f "$folder/model.safetensors" ] || [ ! -f "$folder/tokenizer_config.json" ]; then
  rm -rf "$folder.part"
  HF_HUB_OFFLINE=1 "$1" - "$folder.part" >&2
  rm -rf "$folder"
  mv "$folder.part" "$folder"
fi
printf '%s\n' "$folder"
"""


class DemoStopped(Exception):
    """A step did not work; the text says why and what to do."""


@dataclass
class Journey:
    """``say`` prints a line; ``stop`` is asked between looks and ends a wait early."""

    say: Callable[[str], None]
    stop: Callable[[], bool]
    actor: Actor

    def run(self) -> Engine:
        host = self.host()
        environment = self.environment(host)
        model = self.model(host, environment)
        revision = self.profile(model)
        engine = self.engine(host, environment, revision)
        self.start(engine)
        return engine

    def host(self) -> Host:
        host = Host.objects.filter(kind=HostKind.LOCAL).first()
        if host is None:
            self.say(_("Adding this machine as a host."))
            host = AddHost(
                actor=self.actor,
                name=_("this machine"),
                kind=HostKind.LOCAL,
                work_dir=str(settings.HOME / "host"),
            ).run()
        else:
            self.say(_("This machine is a host already: %(name)s.") % {"name": host})
        probe = host.operations.active().filter(kind="probe").first()
        if probe is None and host.state != HostState.ONLINE:
            probe = ProbeHost(actor=self.actor, host=host).run()
        if probe is not None:
            self.follow(probe)
            host.refresh_from_db()
        return host

    def environment(self, host: Host) -> VllmEnvironment:
        wanted = host.environments.filter(version__startswith=VLLM_VERSION, usable=True, source="provisioned")
        environment = wanted.first()
        if environment is not None:
            self.say(
                _("vLLM %(version)s is there: %(path)s") % {"version": VLLM_VERSION, "path": environment.path}
            )
            return environment
        self.say(
            _("Provisioning vLLM %(version)s for CPUs: about 4 GB on disk, a few minutes the first time.")
            % {"version": VLLM_VERSION}
        )
        active = host.operations.active().filter(kind="provision").first()
        self.follow(
            active or ProvisionVllm(actor=self.actor, host=host, version=VLLM_VERSION, variant="cpu").run()
        )
        environment = wanted.first()
        if environment is None:
            raise DemoStopped(
                _("The environment was made but cannot be found. Probe the host and try again.")
            )
        return environment

    def model(self, host: Host, environment: VllmEnvironment) -> str:
        """A model with random weights, made on the host by the environment's own Python."""
        folder = f"{host.work_dir.rstrip('/')}/models/{NAME}"
        self.say(_("A small model with random weights, made unless it is there: %(path)s") % {"path": folder})
        script = Path(__file__).with_name("tiny_model.py").read_bytes()
        python = str(Path(environment.executable).with_name("python"))
        session = session_for(host)
        try:
            result = session.run(_MAKE_MODEL, args=[python, folder], stdin=script, timeout_s=300)
        finally:
            session.close()
        if result.status != 0:
            raise DemoStopped(_("The model could not be made: %(why)s") % {"why": result.stderr[-800:]})
        return result.stdout.strip()

    def profile(self, model: str) -> Revision:
        profile = Profile.objects.filter(name=NAME).first()
        action = SaveProfile(
            actor=self.actor,
            name=NAME,
            profile=profile,
            description=_("The demo's model: random weights, nonsense answers, real metrics."),
            model=model,
            served_names=[NAME],
            values=VALUES,
            environment=VARIABLES,
            extra_arguments=EXTRA,
        )
        revision = action.run().latest
        if revision is None:
            raise DemoStopped(_("The profile was saved without a revision."))
        self.say(_("Profile: %(revision)s") % {"revision": revision})
        return revision

    def engine(self, host: Host, environment: VllmEnvironment, revision: Revision) -> Engine:
        engine = Engine.objects.filter(name=NAME).first()
        if engine is None:
            engine = CreateEngine(
                actor=self.actor, name=NAME, host=host, revision=revision, environment=environment
            ).run()
        elif engine.revision_id != revision.pk or engine.environment_id != environment.pk:
            ChangeEngine(actor=self.actor, engine=engine, revision=revision, environment=environment).run()
        self.say(_("Engine: %(name)s at %(url)s") % {"name": engine, "url": engine.base_url})
        return engine

    def start(self, engine: Engine) -> None:
        engine.refresh_from_db()
        active = engine.operations.active().first()
        if active is not None:
            self.follow(active)
            engine.refresh_from_db()
        if engine.observed == EngineState.READY:
            self.say(_("It is running already."))
            return
        self.say(_("Starting it: a minute or two on a small machine."))
        self.follow(StartEngine(actor=self.actor, engine=engine).run())
        engine.refresh_from_db()

    def follow(self, operation: Operation) -> None:
        """Print an operation's steps and log until it ends; DemoStopped if it does not succeed."""
        seen: dict[int, str] = {}
        shown = ""
        while True:
            operation.refresh_from_db()
            for step in operation.steps.all():
                text = f"{step.get_state_display()}: {step.label}" + (
                    f" · {step.detail}" if step.detail else ""
                )
                if step.state not in {"pending", "running"} and seen.get(step.pk) != text:
                    seen[step.pk] = text
                    self.say(f"    {text}")
            if operation.is_active and operation.progress_text and operation.progress_text != shown:
                shown = operation.progress_text
                self.say(f"      {shown}")
            if not operation.is_active:
                break
            if self.stop():
                raise KeyboardInterrupt
            time.sleep(0.5)
        if operation.state != OperationState.SUCCEEDED:
            raise DemoStopped(f"{operation}: {operation.message} {operation.remedy}".strip())

    def end(self, limit_s: float = 90) -> None:
        """Stop the demo's engine through the usual action and wait until it has stopped."""
        engine = Engine.objects.filter(name=NAME).first()
        if engine is None or engine.observed in {EngineState.STOPPED, EngineState.FAILED}:
            return
        self.say(_("Stopping the demo's engine."))
        StopEngine(actor=self.actor, engine=engine, grace_s=5).run()
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            engine.refresh_from_db()
            if engine.observed in {EngineState.STOPPED, EngineState.FAILED}:
                self.say(_("It has stopped."))
                return
            time.sleep(0.5)
        self.say(_("It has not stopped yet: look at its page after the next start."))
