"""Runs the scripts on a host and reads their answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engines.launch.files import argv_file, env_file
from engines.launch.scan import Identity, Process, Scan, ScanIncomplete, parse_scan, scan_input
from engines.launch.scripts import script
from engines.ssh.errors import HostUnreachable
from engines.ssh.session import Session
from kvadmin.sentences import gettext as _

#: seconds between SIGTERM and SIGKILL for what a leader left behind
SURVIVORS_GRACE_S = 5


@dataclass
class Launched:
    """What launch.sh said. ``fresh`` is False when this start had been launched before."""

    fresh: bool = False
    launcher: str = ""
    values: dict[str, int] = field(default_factory=dict)
    boot_id: str = ""
    exit_status: int | None = None
    error: str = ""
    notes: list[str] = field(default_factory=list)


def absolute_work_dir(session: Session, work_dir: str) -> str:
    """The host's folder for kvadmin with ~ written out; made if it is not there (mode 0700)."""
    result = session.run(
        'case $1 in "~") d=$HOME ;; "~/"*) d=$HOME/${1#"~/"} ;; /*) d=$1 ;; *) d=$HOME/$1 ;; esac\n'
        'umask 077; mkdir -p "$d" && cd "$d" && pwd',
        args=[work_dir],
    )
    if result.status != 0 or not result.stdout.strip():
        raise OSError(result.stderr.strip() or "no answer")
    return result.stdout.strip().splitlines()[-1]


def write_start(session: Session, directory: str, *, argv: Sequence[str], variables: dict[str, str]) -> None:
    """Write env, argv and run.sh. Safe to repeat before the launch."""
    session.write_file(f"{directory}/env", env_file(variables), 0o600)
    session.write_file(f"{directory}/argv", argv_file(argv), 0o600)
    session.write_file(f"{directory}/run.sh", script("run").encode(), 0o600)


def launch(session: Session, directory: str, *, marker: str, want: str, unit: str) -> Launched:
    """Start the wrapper unless this start has been launched already."""
    result = session.run(script("launch"), args=[directory, marker, want, unit], timeout_s=60)
    lines = result.stdout.splitlines()
    if not lines or lines[-1] != "end=1":
        raise HostUnreachable(_("The connection was cut while the engine was being launched."))
    answer = Launched()
    for line in lines[:-1]:
        key, _eq, value = line.partition("=")
        if key == "fresh":
            answer.fresh = value == "1"
        elif key == "launcher":
            answer.launcher = value
        elif key == "boot":
            answer.boot_id = value
        elif key == "exit" and value.isdigit():
            answer.exit_status = int(value)
        elif key == "error":
            answer.error = value
        elif key == "note":
            answer.notes.append(value)
        elif value.isdigit():
            answer.values[key] = int(value)
    return answer


def scan(session: Session, identities: Iterable[Identity], *, timeout_s: float = 20) -> Scan:
    """One round trip for any number of starts; HostUnreachable when the answer was cut."""
    result = session.run(script("scan"), stdin=scan_input(identities), timeout_s=timeout_s)
    try:
        return parse_scan(result.stdout)
    except ScanIncomplete as error:
        raise HostUnreachable(_("The connection was cut while processes were being listed.")) from error


def send_signal(session: Session, boot_id: str, processes: Iterable[Process], name: str) -> dict[int, str]:
    """Signal processes whose start ticks still match; pid -> sent|gone|other|refused."""
    result = session.run(script("signal"), args=[boot_id, name, *(process.token for process in processes)])
    answers = (line.split() for line in result.stdout.splitlines())
    return {int(pid): verdict for verdict, pid in answers}


def end(
    session: Session, boot_id: str, processes: Iterable[Process], *, grace_s: int = SURVIVORS_GRACE_S
) -> list[int]:
    """SIGTERM, wait, SIGKILL, wait; the pids that are still there."""
    tokens = [process.token for process in processes]
    if not tokens:
        return []
    result = session.run(script("end"), args=[boot_id, str(grace_s), *tokens], timeout_s=grace_s + 30)
    lines = result.stdout.splitlines()
    if not lines or lines[-1] != "end":
        raise HostUnreachable(_("The connection was cut while processes were being ended."))
    return [int(line.split()[1]) for line in lines if line.startswith("left ")]


def end_all(
    session: Session, identity: Identity, *, grace_s: int = SURVIVORS_GRACE_S, rounds: int = 3
) -> tuple[Scan, list[Process]]:
    """End every process of a start until a fresh look finds none; the last look and who is left."""
    for _round in range(rounds):
        seen = scan(session, [identity])
        members = seen.members(identity)
        if not members:
            return seen, []
        end(session, seen.boot_id, members, grace_s=grace_s)
    seen = scan(session, [identity])
    return seen, seen.members(identity)


def gpu_pids(session: Session) -> set[int]:
    """Pids that hold GPU memory; empty where there is no GPU."""
    result = session.run(script("gpu_processes"), timeout_s=20)
    return {int(line.split(",")[0]) for line in result.stdout.splitlines() if line.split(",")[0].isdigit()}


def tail_text(session: Session, path: str, lines: int = 50, most: int = 65536) -> str:
    """The last lines of a file, at most ``most`` bytes of it."""
    size = session.size(path)
    if not size:
        return ""
    data = session.read_range(path, max(0, size - most), most).decode("utf-8", "replace")
    return "\n".join(data.replace("\r", "\n").splitlines()[-lines:])
