"""Which flags a vLLM on a host has: the catalogue, else what was read from an installed one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engines.models import VllmEnvironment, VllmFlags
from engines.vllm import catalog
from engines.vllm.help_text import NotHelp, read_help
from engines.vllm.releases import Flag, Release, release
from engines.vllm.versions import public

if TYPE_CHECKING:
    from engines.ssh.session import Session

#: $1 the path of ``vllm``. Releases up to 0.9 print everything for --help and refuse a value for it.
_HELP = r"""
COLUMNS=1000; export COLUMNS
VLLM_LOGGING_LEVEL=ERROR; export VLLM_LOGGING_LEVEL
said=$("$1" serve --help=all 2>/dev/null)
case $said in
  *--max-model-len*) printf '%s\n' "$said" ;;
  *) "$1" serve --help 2>/dev/null ;;
esac
"""
HELP_TIMEOUT_S = 240


class FlagsUnreadable(Exception):
    """The installed vLLM did not print its flags."""


def release_for(version: str) -> Release:
    """The flags of a version as engines and profiles are checked against. An empty version is the newest
    release of the catalogue."""
    if not version:
        return release(catalog.newest_release())
    if public(version) in catalog.versions():
        return release(version)
    lists = dict(
        VllmFlags.objects.filter(version__in={version, public(version)}).values_list("version", "flags")
    )
    return release(version, lists.get(version) or lists.get(public(version)))


def is_known(version: str) -> bool:
    return (
        public(version) in catalog.versions()
        or VllmFlags.objects.filter(version__in={version, public(version)}).exists()
    )


def read_flags(session: Session, executable: str) -> dict[str, Flag]:
    """Ask an installed vLLM for its flags; takes some 30 s. Raises FlagsUnreadable, or a HostError."""
    result = session.run(_HELP, args=[executable], timeout_s=HELP_TIMEOUT_S)
    try:
        return read_help(result.stdout)
    except NotHelp as error:
        raise FlagsUnreadable(result.stderr.strip()[-300:] or str(error)) from error


def executable_of(environment: VllmEnvironment) -> str:
    return environment.executable or f"{environment.path.rstrip('/')}/bin/vllm"
