from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.utils.translation import gettext as _

from engines.actions.contact_host import contact_after_commit
from engines.actions.host_input import check_settings, picture, set_credentials
from engines.actions.same_machine import refuse_another_machine
from engines.models import EngineStart, Host
from kvadmin.actions import Action, Conflict
from kvadmin.actions.mistakes import Mistakes
from kvadmin.crypto import is_readable

#: a change of one of these means another connection: it is tried after the commit
_CONNECTION = {"address", "port", "username", "auth", "jump", "private_key", "passphrase", "password"}
#: with one of these another, the host's engines could not be found or ended any more
_BELONGS = ("username", "work_dir")
#: with one of these another, it may be another machine: engines would be looked for there, and taken for gone
_WHERE = ("address", "port", "jump")


class _Unchanged:
    def __repr__(self) -> str:
        return "unchanged"


UNCHANGED: Any = _Unchanged()


@dataclass
class ChangeHost(Action[Host]):
    """Change a host's settings; a field left ``UNCHANGED`` (a secret left empty) stays as it is.

    The pinned host key stays: if the new address shows another one, that is a changed key. While an
    engine may run there, user and folder stay as they are, and another address, port or jump host is taken
    only if it leads to the same machine: ``check`` then connects, outside the transaction.
    """

    verb: ClassVar[str] = "host.change"
    permission: ClassVar[str] = "host.change"

    host: Host
    name: str = UNCHANGED
    address: str = UNCHANGED
    port: int = UNCHANGED
    username: str = UNCHANGED
    auth: str = UNCHANGED
    private_key: str = field(default="", repr=False)
    passphrase: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    generate_key: bool = False
    jump: Host | None = UNCHANGED
    service_address: str = UNCHANGED
    work_dir: str = UNCHANGED
    model_dirs: list[str] = UNCHANGED
    index_url: str = UNCHANGED
    wheel_dir: str = UNCHANGED
    proxy: str = UNCHANGED

    _FIELDS: ClassVar[tuple[str, ...]] = (
        "name", "address", "port", "username", "auth", "jump", "service_address", "work_dir",
        "model_dirs", "index_url", "wheel_dir", "proxy",
    )  # fmt: skip

    def subject(self) -> Host:
        return self.host

    def check(self) -> None:
        changed = Host.objects.select_related("jump").get(pk=self.host.pk)
        self.before = picture(changed)
        old = {name: _kept(changed, name) for name in (*_CONNECTION, *_BELONGS)}
        for name in self._FIELDS:
            value = getattr(self, name)
            if value is not UNCHANGED:
                setattr(changed, name, value)
        mistakes = Mistakes()
        check_settings(changed, mistakes)
        set_credentials(changed, mistakes, self)
        mistakes.refuse()
        self._mind_running_engines(changed, [name for name in old if _kept(changed, name) != old[name]])
        self._changed = changed
        self._reconnect = any(_kept(changed, name) != old[name] for name in _CONNECTION)
        self._new_secret = any(
            _kept(changed, name) != old[name] for name in ("private_key", "passphrase", "password")
        )

    def _mind_running_engines(self, changed: Host, fields: list[str]) -> None:
        running = EngineStart.objects.filter(engine__host=self.host, ended_at=None).select_related("engine")
        if changed.is_local or not running:
            return
        for name in _BELONGS:
            if name in fields:
                names = sorted({start.engine.name for start in running})
                raise Conflict(
                    _("User and folder cannot change while engines may run on the host: %(names)s.")
                    % {"names": ", ".join(names)},
                    code="host_has_running_engines",
                    remedy=_(
                        "Stop these engines first, or forget those that kvadmin will never reach again."
                    ),
                    field=name,
                )
        for name in _WHERE:
            if name in fields:
                refuse_another_machine(changed, running, field=name)
                return

    def execute(self) -> Host:
        host = self._changed
        secrets = ("private_key", "passphrase", "password", "public_key")
        host.save(update_fields=[*self._FIELDS, *secrets, "updated_at"])
        self.after = picture(host)
        if self._new_secret:
            self.after["credentials"] = "replaced"
        if self._reconnect and not host.is_local:
            contact_after_commit(host)
        self.host.refresh_from_db()
        return self.host


def _kept(host: Host, name: str) -> Any:
    """The value of a setting, None for a secret that cannot be read."""
    return getattr(host, name) if is_readable(host, name) else None
