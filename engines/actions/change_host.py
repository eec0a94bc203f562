from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.utils.translation import gettext as _

from engines.actions.contact_host import contact_after_commit
from engines.actions.host_input import Mistakes, check_settings, picture, set_credentials
from engines.models import EngineStart, Host
from kvadmin.actions import Action, Conflict
from kvadmin.crypto import is_readable

#: a change of one of these means another connection: it is tried after the commit
_CONNECTION = {"address", "port", "username", "auth", "jump", "private_key", "passphrase", "password"}
#: with one of these another the host's engines would be looked for elsewhere, and taken for gone
_IDENTITY = ("address", "username", "jump", "work_dir")


class _Unchanged:
    def __repr__(self) -> str:
        return "unchanged"


UNCHANGED: Any = _Unchanged()


@dataclass
class ChangeHost(Action[Host]):
    """Change a host's settings; a field left ``UNCHANGED`` (a secret left empty) stays as it is.

    The pinned host key stays: if the new address shows another one, that is a changed key. Address,
    user, jump host and folder stay as they are while an engine may run there.
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
        old = {name: _kept(changed, name) for name in (*_CONNECTION, *_IDENTITY)}
        for name in self._FIELDS:
            value = getattr(self, name)
            if value is not UNCHANGED:
                setattr(changed, name, value)
        mistakes = Mistakes()
        check_settings(changed, mistakes)
        set_credentials(changed, mistakes, self)
        mistakes.refuse()
        moved = [name for name in _IDENTITY if getattr(changed, name) != old[name]]
        if moved:
            self._refuse_while_running(moved[0])
        self._changed = changed
        self._reconnect = any(_kept(changed, name) != old[name] for name in _CONNECTION)
        self._new_secret = any(
            _kept(changed, name) != old[name] for name in ("private_key", "passphrase", "password")
        )

    def _refuse_while_running(self, field_name: str) -> None:
        running = EngineStart.objects.filter(engine__host=self.host, ended_at=None)
        names = sorted(set(running.values_list("engine__name", flat=True)))
        if names:
            raise Conflict(
                _(
                    "Address, user, jump host and folder cannot change while engines may run on the host: "
                    "%(names)s."
                )
                % {"names": ", ".join(names)},
                code="host_has_running_engines",
                remedy=_("Stop these engines first, or forget those that kvadmin will never reach again."),
                field=field_name,
            )

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
