"""Detached jobs of an operation on a host: start one, look at it, read its log, end it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engines.provision import job
from engines.provision.job import JobLook, JobState
from engines.ssh.session import Session

#: what one look reads of a log
LOG_CHUNK = 256 * 1024


class JobNotStarted(Exception):
    """``code``: denied (the folder cannot be written) or nosetsid."""

    def __init__(self, code: str):
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class DetachedJob:
    """One job: its folder on the host and the marker its processes carry."""

    session: Session
    folder: str
    marker: str

    @property
    def log_path(self) -> str:
        return f"{self.folder}/log"

    def launch(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start it unless it was started before. ``environment`` never appears on a command line."""
        lines = "".join(f"{name}={value}\n" for name, value in (environment or {}).items())
        answer = self.session.run(
            job.LAUNCH,
            args=[self.folder, self.marker, job.BODY, *command],
            stdin=lines.encode(),
        ).stdout.strip()
        if answer not in {"launched", "already"}:
            raise JobNotStarted(answer or "denied")

    def look(self) -> JobLook:
        return job.parse_look(self.session.run(job.LOOK, args=[self.folder]).stdout)

    def new_lines(self, offset: int) -> tuple[list[str], int]:
        """Whole log lines from a byte offset, and the offset after them."""
        data = self.session.read_range(self.log_path, offset, LOG_CHUNK)
        lines, taken = job.complete_lines(data)
        if not taken and len(data) == LOG_CHUNK:
            return [data.decode(errors="replace")], offset + len(data)
        return lines, offset + taken

    def end(self) -> int:
        """End every process of it; how many are left after that."""
        left = self.session.run(job.END, args=[self.marker], timeout_s=30).stdout.strip()
        return int(left) if left.isdigit() else 0

    def reset(self) -> None:
        """End what is left of a lost job and let it be launched again."""
        self.end()
        self.session.run(job.RESET, args=[self.folder])


__all__ = ["DetachedJob", "JobLook", "JobNotStarted", "JobState"]
