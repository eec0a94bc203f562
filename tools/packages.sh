#!/bin/sh
# What the tests need of the machine beside Python, as Debian's packages.
# Usage: tools/packages.sh            prints those that are missing
#        tools/packages.sh --refuse   says how to install them, and fails
set -eu

missing=
# need COMMAND PACKAGE
need() { command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] || missing="$missing $2"; }
need make make
need git git
need sshd openssh-server
need ssh openssh-client
need chromium chromium
need msgfmt gettext
need fish fish
need csh csh
need useradd passwd
need setpriv util-linux
need ps procps
need nginx nginx-light
need hey hey
[ -e /usr/share/i18n/locales/de_DE ] || missing="$missing locales"
[ -d /usr/share/fonts/opentype/noto ] || missing="$missing fonts-noto-cjk"

if [ "${1:-}" != --refuse ]; then
    echo "$missing"
elif [ -n "$missing" ]; then
    echo "The tests need more of this machine. As root: apt-get install --no-install-recommends$missing" >&2
    exit 1
fi
