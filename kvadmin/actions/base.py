"""The action: one change, with its permission check, its audit row and what follows the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from django.db import models, transaction
from django.utils.translation import gettext as _

from kvadmin import policies

T = TypeVar("T")


class ActionError(Exception):
    """Why an action was not done, in words for a person.

    ``code`` is stable and for programs; ``remedy`` says what to do; ``field`` names the input that
    is wrong, if one is.
    """

    status: ClassVar[int] = 400

    def __init__(self, message: str, *, code: str, remedy: str = "", field: str | None = None):
        super().__init__(message)
        self.message = message
        self.code = code
        self.remedy = remedy
        self.field = field


class Invalid(ActionError):
    """The input is wrong. ``errors`` maps a field to its sentences when several are."""

    status = 400

    def __init__(
        self,
        message: str,
        *,
        code: str = "invalid",
        remedy: str = "",
        field: str | None = None,
        errors: dict[str, list[str]] | None = None,
    ):
        super().__init__(message, code=code, remedy=remedy, field=field)
        self.errors = errors or ({field: [message]} if field else {})


class Denied(ActionError):
    """The actor may not do this."""

    status = 403


class Conflict(ActionError):
    """It cannot be done in the present state; trying again later may work."""

    status = 409


@dataclass(frozen=True)
class Actor:
    """Who asks, and from where. ``user`` is None for kvadmin itself (reconcile, schedule)."""

    user: Any = None
    source: str = "system"  # web, api, command, system
    ip: str | None = None
    token_id: int | None = None

    @property
    def name(self) -> str:
        return self.user.get_username() if self.user is not None else "kvadmin"

    @classmethod
    def system(cls) -> Actor:
        return cls()


_open_transaction: ContextVar[Callable[[], None] | None] = ContextVar("open_transaction", default=None)


@contextmanager
def one_transaction(first: Callable[[], None]) -> Iterator[None]:
    """One transaction from the first ``execute`` within this block to the end of the block.

    It begins after that action's ``check``, which may take its time on a host: no lock is held
    meanwhile. ``first`` is called as soon as the transaction is open and may refuse.
    """
    with ExitStack() as stack:

        def begin() -> None:
            if _open_transaction.get() is not None:
                _open_transaction.set(None)
                stack.enter_context(transaction.atomic())
                first()

        token = _open_transaction.set(begin)
        stack.callback(_open_transaction.reset, token)
        yield


@dataclass
class Action(Generic[T]):
    """Check, then execute in one transaction, then one audit row in that same transaction.

    Subclasses are dataclasses: they add their input as fields, set ``verb`` (``engine.start``) and
    ``permission`` (a key of ``kvadmin.policies``), and write ``execute``. ``check`` may refuse with
    Invalid, Denied or Conflict; it changes nothing. What has to follow (a task) goes through
    ``transaction.on_commit`` inside ``execute``.
    """

    actor: Actor

    verb: ClassVar[str] = ""
    permission: ClassVar[str] = ""

    #: what the audit row says changed; filled by ``execute``, never with a secret
    before: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    after: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    #: False after an ``execute`` that found nothing to change: such a run leaves no audit row
    changed: bool = field(default=True, init=False, repr=False)

    def subject(self) -> models.Model | None:
        """The object that is acted on, for permission and audit; None while it does not exist."""
        return None

    def check(self) -> None:
        """Refuse with an ActionError, or return. Changes nothing."""

    def execute(self) -> T:
        raise NotImplementedError

    def authorize(self) -> None:
        if self.actor.user is not None and not policies.allows(
            self.actor.user, self.permission, self.subject()
        ):
            raise Denied(
                _("You may not do this."),
                code="permission_denied",
                remedy=policies.whom_to_ask(self.permission),
            )

    def run(self) -> T:
        from kvadmin.models import AuditEvent

        self.authorize()
        self.check()
        begin = _open_transaction.get()
        if begin is not None:
            begin()
        with transaction.atomic():
            result = self.execute()
            if not self.changed:
                return result
            subject = self.subject()
            if subject is None and isinstance(result, models.Model):
                subject = result
            AuditEvent.objects.record(
                actor=self.actor,
                verb=self.verb,
                subject=subject,
                before=self.before,
                after=self.after,
            )
        return result
