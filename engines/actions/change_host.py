from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.db import transaction

from engines.actions.host_input import Mistakes, check_settings, picture, set_credentials
from engines.models import Host
from kvadmin.actions import Action

#: a change of one of these means another connection: it is tried after the commit
_CONNECTION = {"address", "port", "username", "auth", "jump", "private_key", "passphrase", "password"}


class _Unchanged:
    def __repr__(self) -> str:
        return "unchanged"


UNCHANGED: Any = _Unchanged()


@dataclass
class ChangeHost(Action[Host]):
    """Change a host's settings; a field left ``UNCHANGED`` (a secret left empty) stays as it is.

    The pinned host key stays: if the new address shows another one, that is a changed key.
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
        old = {name: getattr(changed, name) for name in _CONNECTION}
        for name in self._FIELDS:
            value = getattr(self, name)
            if value is not UNCHANGED:
                setattr(changed, name, value)
        mistakes = Mistakes()
        check_settings(changed, mistakes)
        set_credentials(
            changed,
            mistakes,
            private_key=self.private_key,
            passphrase=self.passphrase,
            password=self.password,
            generate_key=self.generate_key,
        )
        mistakes.refuse()
        self._changed = changed
        self._reconnect = any(getattr(changed, name) != old[name] for name in _CONNECTION)
        self._new_secret = any(
            getattr(changed, name) != old[name] for name in ("private_key", "passphrase", "password")
        )

    def execute(self) -> Host:
        host = self._changed
        secrets = ("private_key", "passphrase", "password", "public_key")
        host.save(update_fields=[*self._FIELDS, *secrets, "updated_at"])
        self.after = picture(host)
        if self._new_secret:
            self.after["credentials"] = "replaced"
        if self._reconnect and not host.is_local:
            transaction.on_commit(lambda: _contact(host.pk))
        self.host.refresh_from_db()
        return self.host


def _contact(host_id: int) -> None:
    from engines.tasks.contact import contact_host

    contact_host.delay(host_id)
