from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

from django.db import IntegrityError, transaction
from django.utils import timezone

from engines.actions.host_ready import refuse_unconfirmed
from engines.choices import DesiredState, EngineState, Launcher, OperationKind, OperationState
from engines.discovery.parse import base_url, parse_answers
from engines.discovery.scripts import ASK, IDENTIFY
from engines.models import Engine, EngineStart, Host, Operation
from engines.ssh.errors import HostError
from engines.ssh.session import session_for
from kvadmin.actions import Action, Conflict, Invalid
from kvadmin.sentences import gettext as _

_LONGEST_KEY = 500


@dataclass
class AdoptEngine(Action[Engine]):
    """Make an engine of a vLLM server that runs on a host, without touching it.

    ``pid`` is one of the last discovery's servers; the process is looked at again and has to be the
    same. ``api_key`` is what the server was started with; empty: as its process tells, or none. The
    engine has no revision until somebody gives it one. Connects in ``check``, outside the transaction.
    """

    verb: ClassVar[str] = "engine.adopt"
    permission: ClassVar[str] = "engine.change"

    host: Host
    pid: int
    name: str
    api_key: str = field(default="", repr=False)

    def subject(self) -> Host | Engine:
        return getattr(self, "_engine", self.host)

    def check(self) -> None:
        self.name = self.name.strip()
        if not self.name or len(self.name) > 100:
            raise Invalid(_("Give the engine a name of at most 100 characters."), field="name")
        if Engine.objects.filter(name=self.name).exists():
            raise Invalid(_("There is an engine of this name already."), field="name")
        self.api_key = self.api_key.strip()
        if len(self.api_key) > _LONGEST_KEY or not self.api_key.isprintable():
            raise Invalid(_("This is not an API key."), field="api_key")
        refuse_unconfirmed(self.host)
        discovery, self._server = discovered(self.host, self.pid)
        self._boot_id = discovery.scratch.get("boot_id", "")
        if self._server.get("port") is None:
            raise Conflict(
                _("It cannot be told on which port this server listens."),
                code="no_port",
                remedy=_("Wait until it listens, then discover again; a container's ports cannot be seen."),
            )
        present = self.host.engines.filter(port=self._server["port"]).first()
        if present is not None:
            raise Conflict(
                _("The engine %(name)s has this host and port already.") % {"name": present.name},
                code="port_taken",
                remedy=_("Stop that engine, or remove it, if it is not the one that runs there."),
            )
        self._look_again()

    def _look_again(self) -> None:
        """The same process still; what it answers; with which key."""
        server = self._server
        url = base_url(server["address"], server["port"])
        try:
            session = session_for(self.host)
            try:
                args = [str(server["pid"]), str(server["ticks"]), self._boot_id]
                identity = session.run(IDENTIFY, args=args).stdout.splitlines()
                if identity[:1] != ["same"]:
                    raise Conflict(
                        _("That process has ended since the discovery."),
                        code="process_gone",
                        remedy=_("Discover again."),
                    )
                told = [line.removeprefix("key ") for line in identity[1:] if line.startswith("key ")]
                self._key = self.api_key or (told or [""])[0]
                answer = session.run(ASK, args=[url], stdin=f"{self._key}\n".encode(), timeout_s=30)
            finally:
                session.close()
        except HostError as error:
            raise Conflict(error.message, code=error.code, remedy=error.remedy) from error
        self._answers = parse_answers(answer.stdout)
        if self._answers["models"] == 401:
            sentence = (
                _("The server refuses this API key.")
                if self._key
                else _("The server asks for an API key, and its process does not tell it: enter it.")
            )
            raise Invalid(sentence, code="api_key_needed", field="api_key")

    def execute(self) -> Engine:
        server, answers = self._server, self._answers
        ready = answers["health"] == 200 and answers["models"] == 200
        try:
            with transaction.atomic():
                engine = self._engine = Engine.objects.create(
                    name=self.name,
                    host=self.host,
                    revision=None,
                    environment=self.host.environments.filter(path=server["environment"]).first(),
                    port=server["port"],
                    bind_address=server["address"],
                    api_key=self._key,
                    desired=DesiredState.RUNNING,
                    served_names=answers["served_names"] or server["served_names"],
                    max_model_len=answers["max_model_len"],
                    vllm_version=answers["version"],
                )
        except IntegrityError as error:
            raise Conflict(
                _("Somebody adopted it, or took its name, at the same moment."), code="adopted_already"
            ) from error
        now = timezone.now()
        start = EngineStart.objects.create(
            engine=engine,
            number=1,
            launcher=Launcher.ADOPTED,
            command=server["argv"],
            boot_id=self._boot_id,
            pid=server["pid"],
            start_ticks=server["ticks"],
            processes=server["processes"],
            vllm_version=answers["version"],
            log_path=server["log_path"] if server["log_readable"] else "",
            launched_at=_discovered_at(self.host) - timedelta(seconds=server["started_before_s"]),
            ready_at=now if ready else None,
            created_by=self.actor.user,
        )
        engine.current_start = start
        engine.save(update_fields=["current_start"])
        engine.move(
            EngineState.READY if ready else EngineState.LOADING,
            only_from=(EngineState.STOPPED,),
            reason_code="adopted",
            reason=_("Adopted while running."),
            start=start,
        )
        self.after = {
            "name": engine.name,
            "host": self.host.name,
            "port": engine.port,
            "pid": server["pid"],
            "served_names": engine.served_names,
        }
        return engine


def _last_discovery(host: Host) -> Operation | None:
    return host.operations.filter(kind=OperationKind.DISCOVER, state=OperationState.SUCCEEDED).first()


def _discovered_at(host: Host) -> Any:
    discovery = _last_discovery(host)
    return (discovery.finished_at if discovery else None) or timezone.now()


def discovered(host: Host, pid: int) -> tuple[Operation, dict[str, Any]]:
    """The last discovery of a host and what it knows of a process; Conflict when it knows nothing."""
    discovery = _last_discovery(host)
    servers = discovery.scratch.get("servers", []) if discovery is not None else []
    server = next((each for each in servers if each["pid"] == pid), None)
    if discovery is None or server is None:
        raise Conflict(
            _("No such server is in the last discovery of this host."),
            code="not_discovered",
            remedy=_("Discover again."),
        )
    return discovery, server
