"""The cache that a start would find, before it is started."""

from __future__ import annotations

from dataclasses import replace

from engines.launch.checks import Check
from engines.launch.flag_check import sentence_of
from engines.models import Host
from engines.planner.estimate import guard
from engines.planning import plan
from engines.vllm.notes import Note, Severity, Unreadable
from engines.vllm.spec import ServeSpec
from kvadmin.sentences import gettext as _

#: said of the GPUs by another check, from what they hold at this moment
_ELSEWHERE = frozenset({"free_too_little"})


def plan_check(spec: ServeSpec, version: str, host: Host) -> list[Check]:
    """One check, safe to override: the plan may be wrong where vLLM is right. None where nothing is known."""
    try:
        found = plan(spec, host, version)
    except Unreadable as problem:
        return [_refusal(problem.note)]
    if found is None:
        return []
    notes = [note for note in guard(found) if note.code not in _ELSEWHERE]
    errors = [note for note in notes if note.severity is Severity.ERROR]
    if errors:
        return [_refusal(errors[0])]
    if notes:
        text = sentence_of(notes[0])
    elif found.pool.layout.groups:
        values = {"tokens": f"{found.tokens:,}", "requests": f"{found.concurrency:.1f}"}
        text = (
            _("The cache is expected to hold %(tokens)s tokens: %(requests)s requests of the longest kind.")
            % values
        )
    else:
        text = _("This model keeps no cache of a request.")
    return [Check("plan", True, text)]


def _refusal(note: Note) -> Check:
    remedy = sentence_of(replace(note, message=note.remedy)) if note.remedy else ""
    return Check("plan_refused", False, sentence_of(note), remedy, safe=True)
