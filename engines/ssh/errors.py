"""What can go wrong between kvadmin and a host; each carries a sentence and a remedy."""

from __future__ import annotations


class HostError(Exception):
    """Base. ``code`` is stable; ``remedy`` says what a person can do.

    ``hop`` is the name of the host that gave the error, which may be a jump host in between.
    """

    code = "host_error"
    hop = ""

    def __init__(self, message: str, *, remedy: str = ""):
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class HostUnreachable(HostError):
    """No connection, or it was cut. Nothing is known about the host; nothing may be concluded."""

    code = "host_unreachable"


class CommandTimeout(HostUnreachable):
    """The command did not answer in time. It may still be running on the host."""

    code = "command_timeout"


class SignInRefused(HostError):
    """The host answered and refused the credentials."""

    code = "sign_in_refused"


class HostKeyUnknown(HostError):
    """First contact: ``offered`` ("type base64") has to be confirmed by a person."""

    code = "host_key_unknown"

    def __init__(self, message: str, *, offered: str, remedy: str = ""):
        super().__init__(message, remedy=remedy)
        self.offered = offered


class HostKeyChanged(HostError):
    """The host shows another key than the pinned one: nothing is done on it until a person decides."""

    code = "host_key_changed"

    def __init__(self, message: str, *, pinned: str, offered: str, remedy: str = ""):
        super().__init__(message, remedy=remedy)
        self.pinned = pinned
        self.offered = offered


class HostKeyUnusable(HostError):
    """The private key kept for the host cannot be used: wrong passphrase, unsupported, not a key."""

    code = "private_key_unusable"


class HostMisconfigured(HostError):
    """What is entered for the host cannot work: its jump hosts go in a circle."""

    code = "host_misconfigured"


class HostShellUnusable(HostError):
    """The sign-in worked, but no POSIX shell ran: a restricted account, a login shell that ends at once."""

    code = "host_shell_unusable"


class HostDiskFull(HostError):
    """The host had no space left for a file; nothing of it was left behind."""

    code = "host_disk_full"


class HostFileMissing(HostError):
    """There is no such file on the host."""

    code = "host_file_missing"


class HostFileDenied(HostError):
    """The user signed in as may not read or write that file on the host."""

    code = "host_file_denied"


#: codes of errors after which nothing is known about what runs on the host
NOTHING_KNOWN = frozenset(
    kind.code
    for kind in (
        HostUnreachable,
        CommandTimeout,
        SignInRefused,
        HostKeyUnknown,
        HostKeyChanged,
        HostKeyUnusable,
        HostMisconfigured,
        HostShellUnusable,
    )
)
