#!/bin/sh
# Makes .venv with what the named requirements file pins, or leaves it alone when it is complete.
# Usage: tools/venv.sh requirements.txt|requirements-dev.txt
#
# Complete means: the stamp beside the packages matches the requirements, or every pin is satisfied. The
# second looks at a .venv that is a link, or that somebody filled by hand.
set -eu
cd "$(dirname "$0")/.."
wanted=$1
venv=.venv

say() { echo "$*" >&2; }
refuse() { say "kvadmin cannot start: $*"; exit 1; }

fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

sum() { cat requirements.txt requirements-dev.txt constraints.txt | sha256sum | cut -d' ' -f1; }

complete() {
    [ -x "$venv/bin/python" ] && fits "$venv/bin/python" || return 1
    [ "$(cat "$venv/.kvadmin-$wanted" 2>/dev/null)" = "$(sum)" ] && return 0
    "$venv/bin/python" tools/pins.py "$wanted" >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        fits "$PYTHON" || refuse "PYTHON=$PYTHON is no Python 3.11 or newer. Name another, or leave it out."
        echo "$PYTHON"
        return
    fi
    for name in python3.11 python3 python3.12 python3.13; do
        if command -v "$name" >/dev/null && fits "$name"; then
            echo "$name"
            return
        fi
    done
    have=$(python3 --version 2>/dev/null || echo "no python3")
    refuse "it needs Python 3.11 and here is $have. Install it (apt-get install python3.11 python3.11-venv), or name one: make run PYTHON=/path/to/python3.11"
}

complete && exit 0

# two makes at once: the second waits, and then finds it done
if command -v flock >/dev/null && [ -z "${KVADMIN_UP_VENV_LOCKED:-}" ]; then
    KVADMIN_UP_VENV_LOCKED=1 exec flock . sh tools/venv.sh "$wanted"
fi

if [ -L "$venv" ]; then
    "$venv/bin/python" tools/pins.py "$wanted" >&2 || true
    refuse ".venv is a link to an environment without the packages named above. Install them there, or remove the link: make then makes an environment of its own."
fi

python=$(find_python)
"$python" -c 'import ensurepip' 2>/dev/null ||
    refuse "Python's module for virtual environments is missing. Install it: apt-get install python3-venv"

if [ -e "$venv" ] && ! { [ -x "$venv/bin/python" ] && fits "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; }; then
    say "The virtual environment .venv is incomplete: making it anew"
    rm -rf "$venv"
fi
if [ ! -e "$venv" ]; then
    say "Making the virtual environment .venv with $("$python" --version)"
    "$python" -m venv "$venv" || { rm -rf "$venv"; refuse "the virtual environment could not be made; the reason stands above."; }
fi

say "Installing the packages of $wanted (once; some minutes)"
"$venv/bin/python" -m pip install --quiet --no-input --disable-pip-version-check --progress-bar off -r "$wanted" ||
    refuse "the packages could not be installed; the reason stands above. Mend that (network, disk, pip's index) and run make again: it goes on where it stopped."
sum >"$venv/.kvadmin-$wanted"
