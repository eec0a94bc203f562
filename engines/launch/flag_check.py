"""The profile's flags against the vLLM that is about to read them."""

from __future__ import annotations

from engines.flag_lists import release_for
from engines.launch.checks import Check
from engines.vllm.notes import Note, Severity
from engines.vllm.spec import ServeSpec
from engines.vllm.translate import translate
from kvadmin.sentences import gettext as _
from kvadmin.sentences import joined


def flag_check(spec: ServeSpec, version: str) -> tuple[Check, list[str]]:
    """The check, and sentences about what was translated or left out. A refusal is safe to override: the
    flag is then handed over as it stands."""
    release = release_for(version)
    translation = translate(spec, release)
    others = [
        sentence_of(note)
        for line in translation.lines
        if (note := line.note) is not None and note.severity is not Severity.ERROR
    ]
    refused = translation.refused
    values = {"version": release.version}
    if not refused:
        text = _("vLLM %(version)s takes all flags of the profile.") % values
        if not release.exact:
            text = _(
                "The flags of vLLM %(version)s are not known: they were checked against those of %(near)s."
            ) % {**values, "near": release.read_from}
        return Check("flags", True, text), others
    sentences = [sentence_of(line.note) for line in refused if line.note is not None]
    remedy = _("Change the profile: its page names what each version takes, and mends it.")
    return Check("flags_refused", False, joined(*sentences), remedy, safe=True), others


def sentence_of(note: Note) -> str:
    """A note as a stored sentence, without its remedy."""
    params = {
        name: sentence_of(value) if isinstance(value, Note) else value for name, value in note.params.items()
    }
    return _(note.message) % params
