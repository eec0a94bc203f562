"""Discovery: which vLLM servers run on a host that are not engines of this kvadmin.

Leaves in ``scratch``: servers (engines.discovery.parse.Server as JSON, without secrets), boot_id,
unreadable (how many could not be looked into), hidden (the host hides other users' processes).
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from django.utils.translation import gettext_lazy

from engines.choices import OperationKind
from engines.discovery.parse import Server, base_url, parse_answers, parse_scan
from engines.discovery.scripts import ASK, SCAN
from engines.models import EngineStart
from engines.operations.base import Again, Context, Done, Flow, Step, register
from kvadmin.sentences import gettext as _
from kvadmin.sentences import ngettext


def _scan(context: Context) -> Done:
    scan = parse_scan(context.session.run(SCAN, timeout_s=60).stdout)
    ours = {str(marker) for marker in EngineStart.objects.values_list("marker", flat=True)}
    known = _known_processes(context, scan.boot_id)
    servers = [
        server
        for server in scan.servers
        if server.marker not in ours and (server.pid, server.ticks) not in known
    ]
    context.scratch.update(
        servers=[server.as_dict() for server in servers],
        boot_id=scan.boot_id,
        hidden=scan.hidden,
        unreadable=scan.unreadable,
    )
    skipped = len(scan.servers) - len(servers)
    text = ngettext("%(count)d vLLM server found.", "%(count)d vLLM servers found.", len(servers))
    text %= {"count": len(servers)}
    if skipped:
        text += " " + ngettext(
            "%(count)d more is an engine already.", "%(count)d more are engines already.", skipped
        ) % {"count": skipped}
    if scan.hidden:
        text += " " + _("The host hides processes of other users; those were not looked at.")
    return Done(text)


def _known_processes(context: Context, boot_id: str) -> set[tuple[int, int]]:
    """(pid, start ticks) of every process of this host's engines."""
    known: set[tuple[int, int]] = set()
    starts = EngineStart.objects.filter(engine__host=context.host, boot_id=boot_id, ended_at=None)
    for start in starts:
        if start.pid is not None and start.start_ticks is not None:
            known.add((start.pid, start.start_ticks))
        known |= {(process.get("pid"), process.get("ticks")) for process in start.processes}
    return known


def _ask(context: Context) -> Done | Again:
    servers = [Server(**data) for data in context.scratch["servers"]]
    asked: list[Server] = []
    for server in servers:
        if server.port is None or "container" in server.notes:
            asked.append(server)
            continue
        url = base_url(server.address, server.port)
        answer = context.session.run(ASK, args=[url], stdin=b"\n", timeout_s=30)
        asked.append(replace(server, answers=parse_answers(answer.stdout)))
        names = ", ".join(asked[-1].answers["served_names"] or server.served_names)
        context.log(
            _("Process %(pid)d, port %(port)d: %(names)s")
            % {"pid": server.pid, "port": server.port, "names": names or "?"}
        )
    context.scratch["servers"] = [server.as_dict() for server in asked]
    answering = sum(server.answers.get("health") == 200 for server in asked)
    return Done(
        ngettext("%(count)d answers over HTTP.", "%(count)d answer over HTTP.", answering)
        % {"count": answering}
    )


@register
class Discover(Flow):
    """Look through the host's processes, then ask each server found what it serves."""

    kind: ClassVar[str] = OperationKind.DISCOVER
    steps: ClassVar[list[Step]] = [
        Step("scan", gettext_lazy("Look through the processes"), _scan, limit_s=120),
        Step("ask", gettext_lazy("Ask what they serve"), _ask, limit_s=300),
    ]
