"""A job on a host that outlives the connection and the worker: scripts and what they answer.

A job has a folder with ``log``, ``pid`` ("pid ticks boot-id" of its leader) and, at its end, ``exit``
(the status). Every process of it carries ``KVADMIN_JOB=<marker>`` in its environment; only processes
so marked are ever signalled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

#: a marker is used in a fixed-string search, so it has to be free of surprises
MARKER = re.compile(r"[0-9A-Za-z.-]{8,80}")

# $1 the job's folder, $2… the command. Runs as the leader of its own session.
BODY = r"""
dir=$1; shift
ticks=$(sed 's/^.*) //' "/proc/$$/stat" | cut -d' ' -f20)
boot=$(cat /proc/sys/kernel/random/boot_id)
echo "$$ $ticks $boot" >"$dir/pid.new" && mv "$dir/pid.new" "$dir/pid"
"$@"
status=$?
echo "$status" >"$dir/exit.new" && mv "$dir/exit.new" "$dir/exit"
"""

# $1 folder, $2 marker, $3 BODY, $4… the command; standard input: NAME=value lines for its environment.
# Running it twice starts one job: making the folder "started" is what decides.
LAUNCH = r"""
dir=$1; marker=$2; body=$3; shift 3
umask 077
mkdir -p "$dir" || { echo denied; exit 0; }
command -v setsid >/dev/null 2>&1 || { echo nosetsid; exit 0; }
mkdir "$dir/started" 2>/dev/null || { echo already; exit 0; }
while IFS= read -r line; do
  case $line in [A-Za-z_]*=*) export "$line" ;; esac
done
export KVADMIN_JOB="$marker" LC_ALL=C
setsid sh -c "$body" job "$dir" "$@" </dev/null >>"$dir/log" 2>&1 &
echo launched
"""

# $1 folder
LOOK = r"""
dir=$1
same() {
  [ "$3" = "$(cat /proc/sys/kernel/random/boot_id)" ] || return 1
  [ -r "/proc/$1/stat" ] || return 1
  [ "$2" = "$(sed 's/^.*) //' "/proc/$1/stat" | cut -d' ' -f20)" ]
}
if [ -f "$dir/exit" ]; then echo "exited $(cat "$dir/exit")"; exit 0; fi
if [ -f "$dir/pid" ]; then
  read -r pid ticks boot <"$dir/pid"
  if same "$pid" "$ticks" "$boot"; then echo running; exit 0; fi
  sleep 1
  if [ -f "$dir/exit" ]; then echo "exited $(cat "$dir/exit")"; else echo lost; fi
elif [ -d "$dir/started" ]; then
  if [ -n "$(find "$dir/started" -maxdepth 0 -mmin +1 2>/dev/null)" ]; then echo lost; else echo starting; fi
else
  echo none
fi
"""

# $1 marker. Ends every process that carries it: TERM, up to five seconds, KILL; prints how many are left.
END = r"""
marker=$1
carriers() {
  grep -lF "KVADMIN_JOB=$marker" /proc/[0-9]*/environ 2>/dev/null | sed 's,^/proc/,,; s,/environ$,,'
}
signal() { for pid in $(carriers); do kill "-$1" "$pid" 2>/dev/null; done; }
signal TERM
for second in 1 2 3 4 5; do
  [ -z "$(carriers)" ] && break
  sleep 1
done
signal KILL
[ -z "$(carriers)" ] || sleep 1
carriers | grep -c .
"""

# $1 folder: lets a lost job be launched again; its log is kept and appended to.
RESET = r"""
rm -rf "$1/started" "$1/pid" "$1/exit"
"""


class JobState(StrEnum):
    NONE = "none"
    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    LOST = "lost"


@dataclass(frozen=True)
class JobLook:
    """What LOOK found; ``status`` is the exit status of a job that exited."""

    state: JobState
    status: int | None = None


def parse_look(stdout: str) -> JobLook:
    words = stdout.split()
    state = JobState(words[0]) if words and words[0] in set(JobState) else JobState.LOST
    if state is JobState.EXITED:
        if len(words) < 2 or not words[1].isdigit():
            return JobLook(JobState.LOST)
        return JobLook(state, int(words[1]))
    return JobLook(state)


def complete_lines(data: bytes) -> tuple[list[str], int]:
    """The whole lines at the start of ``data``, and how many bytes they take (a cut line waits)."""
    end = data.rfind(b"\n") + 1
    return data[:end].decode(errors="replace").splitlines(), end
