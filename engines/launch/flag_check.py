"""The profile against the vLLM and the host that it is about to start on."""

from __future__ import annotations

from engines.flag_lists import release_for
from engines.launch.checks import Check
from engines.model_shapes import shape_of
from engines.models import Host
from engines.vllm.notes import Note, Severity
from engines.vllm.spec import ServeSpec
from engines.vllm.target import Target, judge
from kvadmin.sentences import gettext as _
from kvadmin.sentences import joined


def flag_check(spec: ServeSpec, version: str, host: Host) -> tuple[Check, list[str]]:
    """The check, and sentences about what was translated or left out. A refusal is safe to override: the
    flag is then handed over as it stands. GPUs are checked elsewhere, as they are now."""
    release = release_for(version)
    memory = (host.facts.get("memory") or {}).get("total_bytes")
    verdict = judge(spec, Target(host.name, release, memory_bytes=memory, shape=shape_of(spec.model, host)))
    refused = [sentence_of(note) for note in verdict.notes if note.severity is Severity.ERROR]
    others = [sentence_of(note) for note in verdict.notes if note.severity is not Severity.ERROR]
    values = {"version": release.version}
    if not refused:
        text = _("vLLM %(version)s takes all flags of the profile.") % values
        if not release.exact:
            text = _(
                "The flags of vLLM %(version)s are not known: they were checked against those of %(near)s."
            ) % {**values, "near": release.read_from}
        return Check("flags", True, text), others
    remedy = _("Change the profile: its form names what each version takes, and mends it with a click.")
    return Check("flags_refused", False, joined(*refused), remedy, safe=True), others


def sentence_of(note: Note) -> str:
    """A note as a stored sentence, without its remedy."""
    params = {
        name: sentence_of(value) if isinstance(value, Note) else value for name, value in note.params.items()
    }
    return _(note.message) % params
