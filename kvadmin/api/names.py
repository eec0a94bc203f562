"""Finding the name that was meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from django.utils.translation import gettext as _


def unknown_name(name: str, known: Iterable[str], sentence: str) -> str:
    """``sentence`` (with %(name)s) and, where one is near, the known name that was probably meant."""
    names = sorted(known)
    said = sentence % {"name": name[:60]}
    near = get_close_matches(name[:60], names, n=1, cutoff=0.6)
    if near:
        return _("%(sentence)s Did you mean “%(near)s”?") % {"sentence": said, "near": near[0]}
    if names:
        return _("%(sentence)s Known: %(names)s.") % {"sentence": said, "names": ", ".join(names)}
    return said
