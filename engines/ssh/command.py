"""What is sent to a host's shell. Pure.

The command line of every run is the same constant: it reads one line from standard input, byte by byte
as ``read`` does, and evaluates it. That line (``program``) carries script and arguments, so neither can
be seen in the host's process list, and what follows it on standard input is left to the script. Quoting
of the constant is understood alike by sh, bash, csh, tcsh, fish and zsh as login shells.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

BOOTSTRAP = """exec /bin/sh -c 'IFS= read -r k && eval "$k"'"""
#: the same for a process started without a login shell
BOOTSTRAP_ARGV = ["/bin/sh", "-c", 'IFS= read -r k && eval "$k"']

#: how much longer than the caller the host waits before it ends a script by itself
WATCHDOG_GRACE_S = 10

_PLAIN = re.compile(rb"[A-Za-z0-9_ ./:=,@+-]")
# sshd gives a short PATH; the last two are where containers and WSL keep nvidia-smi
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/nvidia/bin:/usr/lib/wsl/lib"

# One line. The script runs in a subshell whose group is led by $$ (sshd and LocalSession both start a
# session for a command), with its own deadline in case nobody is left to end it; its watchdog may be
# told to go (TERM) before it has started its sleep, hence x and p. The markers bear a
# nonce: whatever rc files print before them, or anything after them, is not the script's.
_PROGRAM = (
    "LC_ALL=C; LANGUAGE=C; export LC_ALL LANGUAGE; "
    'PATH="${{PATH:-/usr/bin}}:{path}"; export PATH; '
    'if [ -z "$XDG_RUNTIME_DIR" ] && [ -d "/run/user/$(id -u)" ]; then '
    'XDG_RUNTIME_DIR="/run/user/$(id -u)"; export XDG_RUNTIME_DIR; fi; '
    "printf '{nonce}:begin:%s\\n' $$; printf '{nonce}:begin:%s\\n' $$ >&2; "
    "( x=; p=; trap 'x=1; kill $p' TERM; sleep {limit} & p=$!; "
    '[ "$x" ] || wait $p && [ -z "$x" ] && {{ kill -9 -$$ || kill -9 $$; }}; kill $p; wait ) '
    "</dev/null >/dev/null 2>&1 & kv_w=$!; "
    "( {arguments}; unset kv_w k; cd; eval \"$(printf %b '{script}')\" ); kv_r=$?; "
    "printf '{nonce}:end:%s\\n' $kv_r >&2; printf '{nonce}:end:%s\\n' $kv_r; "
    "kill $kv_w; wait $kv_w; exit $kv_r\n"
)


def escape(text: str) -> str:
    r"""For ``printf %b`` within single quotes: plain characters stay, all others become ``\0ooo``."""
    data = text.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise ValueError("a shell word cannot contain a null byte")
    return "".join(chr(byte) if _PLAIN.match(bytes((byte,))) else f"\\0{byte:03o}" for byte in data)


def program(script: str, args: Sequence[str], *, nonce: str, limit_s: float) -> bytes:
    """The line for BOOTSTRAP: runs ``script`` with ``args`` as $1, $2, … between marked lines.

    ``nonce`` is letters and digits. The script's home folder is its working directory. After
    ``limit_s`` plus a grace the host ends the script's process group by itself.
    """
    words = []
    for position, arg in enumerate(args, 1):
        # the x keeps trailing newlines, which command substitution would take off
        words.append(f"kv_{position}=$(printf %b '{escape(arg)}x'); kv_{position}=${{kv_{position}%x}}; ")
    values = " ".join(f'"$kv_{position}"' for position in range(1, len(args) + 1))
    arguments = "".join(words) + f"set -- {values}"
    return _PROGRAM.format(
        path=_PATH,
        nonce=nonce,
        limit=math.ceil(limit_s) + WATCHDOG_GRACE_S,
        arguments=arguments.strip(),
        script=escape(script),
    ).encode()


#: $1 the leader's pid (dash knows no "--" here); ends the process group of a run, or at least its leader
END_GROUP = 'kill -9 "-$1" 2>/dev/null || kill -9 "$1" 2>/dev/null || true'

# a leading ~/ is the host's business; $1 is always the path
_EXPAND = 'case $1 in "~") p=$HOME;; "~/"*) p=$HOME/${1#"~/"};; *) p=$1;; esac\n'

#: $1 path, $2 offset, $3 length. GNU tail seeks in a regular file, so the cost is the length's only.
READ_RANGE = (
    _EXPAND
    + """
[ -e "$p" ] || { echo missing >&2; exit 3; }
[ -r "$p" ] || { echo denied >&2; exit 4; }
[ "$3" -gt 0 ] || exit 0
tail -c "+$(($2 + 1))" -- "$p" | head -c "$3"
"""
)

#: $1 path; prints the size, status 3 when there is none
SIZE = (
    _EXPAND
    + """
[ -e "$p" ] || exit 3
stat -L -c %s -- "$p" 2>/dev/null || wc -c <"$p"
"""
)

#: $1 path, $2 mode, $3 bytes to expect on standard input
WRITE_FILE = (
    _EXPAND
    + """
umask 077
d=$(dirname -- "$p")
[ -d "$d" ] || mkdir -p -- "$d" || exit 5
t=$(mktemp "$d/.kvadmin-XXXXXXXX") || exit 5
trap 'rm -f -- "$t"' EXIT
trap 'exit 6' HUP INT TERM PIPE
cat >"$t" || exit 5
[ "$(wc -c <"$t")" -eq "$3" ] || { echo short >&2; exit 6; }
chmod -- "$2" "$t" || exit 5
sync -- "$t" 2>/dev/null
mv -f -- "$t" "$p" || exit 5
"""
)
