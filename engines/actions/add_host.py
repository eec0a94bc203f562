from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from engines.actions.contact_host import contact_after_commit
from engines.actions.host_input import check_settings, picture, set_credentials
from engines.choices import HostAuth, HostKind, OperationKind
from engines.models import Host
from engines.operations.begin import begin_operation
from kvadmin.actions import Action
from kvadmin.actions.mistakes import Mistakes


@dataclass
class AddHost(Action[Host]):
    """Add a host. Over SSH it is contacted after the commit and then shows its key for a person to
    confirm; this machine is probed at once. ``generate_key`` makes a key pair: ``Host.public_key`` is
    the line for the host's authorized_keys.
    """

    verb: ClassVar[str] = "host.add"
    permission: ClassVar[str] = "host.change"

    name: str = ""
    kind: str = HostKind.SSH
    address: str = ""
    port: int = 22
    username: str = ""
    auth: str = HostAuth.KEY
    private_key: str = field(default="", repr=False)
    passphrase: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    generate_key: bool = False
    jump: Host | None = None
    service_address: str = ""
    work_dir: str = "~/.kvadmin"
    model_dirs: list[str] = field(default_factory=list)
    index_url: str = ""
    wheel_dir: str = ""
    proxy: str = ""

    def check(self) -> None:
        host = Host(
            name=self.name,
            kind=self.kind,
            address=self.address,
            port=self.port,
            username=self.username,
            auth=self.auth,
            jump=self.jump,
            service_address=self.service_address,
            work_dir=self.work_dir,
            model_dirs=self.model_dirs,
            index_url=self.index_url,
            wheel_dir=self.wheel_dir,
            proxy=self.proxy,
        )
        mistakes = Mistakes()
        check_settings(host, mistakes)
        set_credentials(host, mistakes, self)
        mistakes.refuse()
        self._host = host

    def execute(self) -> Host:
        host = self._host
        host.save()
        self.after = picture(host)
        if host.is_local:
            begin_operation(OperationKind.PROBE, actor=self.actor, host=host)
        else:
            contact_after_commit(host)
        return host
