"""An engine's log: tail live, page back, search, download. Read in ranges from the host, never whole."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views import View

from engines import logs
from engines.models import Engine, EngineStart
from engines.ssh.errors import HostError
from engines.views.engines.detail import engine_context
from kvadmin.numbers import whole_number
from kvadmin.sse import Event, Read, event_stream, last_event_id, still_allowed
from kvadmin.streaming import PieceByPiece
from kvadmin.views.base import PermissionView, search_text

#: lines shown at first, bytes of one page back, and how often the tail looks for more
TAIL_LINES, PAGE_BYTES, TAIL_EVERY_S = 400, 65_536, 1.0


def start_of(request: HttpRequest, pk: int) -> EngineStart:
    """The start whose log is asked for (``start=number``), the newest by default."""
    engine = get_object_or_404(Engine.objects.visible_to(request.user).select_related("host"), pk=pk)
    starts = engine.starts.select_related("engine__host")
    wanted = whole_number(request.GET.get("start"))
    start = starts.first() if wanted is None else starts.filter(number=wanted).first()
    if start is None or not start.log_path:
        raise Http404(_("There is no log of this start."))
    return start


def _chunk(chunk: logs.Chunk) -> dict[str, Any]:
    return {"start": chunk.start_offset, "end": chunk.end_offset, "text": chunk.text}


class EngineLogView(PermissionView, View):
    permission = "engine.log"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        context = engine_context(request, pk)
        starts = context["engine"].starts.all()
        wanted = whole_number(request.GET.get("start"))
        start = starts.first() if wanted is None else starts.filter(number=wanted).first()
        context.update(starts=starts[:50], start=start, tab="engine_log")
        if start is not None and start.log_path:
            try:
                context["chunk"] = logs.tail(start, lines=TAIL_LINES)
            except HostError as error:
                context["trouble"] = f"{error.message} {error.remedy}".strip()
        return render(request, "engines/engine_log.html", context)


class LogChunkView(PermissionView, View):
    """JSON {"start", "end", "text"}: the log before ``before`` or after ``after`` (byte offsets)."""

    permission = "engine.log"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        start = start_of(request, pk)
        before, after = (whole_number(request.GET.get(name)) for name in ("before", "after"))
        try:
            if before is not None:
                chunk = logs.before(start, before, PAGE_BYTES)
            elif after is not None:
                chunk = logs.after(start, after)
            else:
                chunk = logs.tail(start, lines=TAIL_LINES)
        except HostError as error:
            return JsonResponse({"error": error.message, "remedy": error.remedy}, status=503)
        return JsonResponse(_chunk(chunk))


class LogSearchView(PermissionView, View):
    """JSON {"hits": [{"offset", "line"}], "more"}: lines that hold the text, found on the host."""

    permission = "engine.log"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        start = start_of(request, pk)
        needle = search_text(request)
        if not needle:
            return JsonResponse({"hits": [], "more": False})
        try:
            hits = logs.search(start, needle[:200], limit=200)
        except HostError as error:
            return JsonResponse({"error": error.message, "remedy": error.remedy}, status=503)
        return JsonResponse(
            {"hits": [{"offset": hit.offset, "line": hit.text} for hit in hits], "more": len(hits) >= 200}
        )


def follow(start: EngineStart, offset: int) -> Read[int]:
    """What a look at the log brings to somebody who has it up to ``offset``."""
    try:
        chunk = logs.after(start, offset)
    except HostError as error:
        return Read(offset, [Event(error.message, name="trouble")])
    events = []
    if chunk.start_offset < offset:
        events.append(Event(_("The log has begun anew on the host."), name="anew"))
    if chunk.text:
        events.append(Event(chunk.text, name="lines", id=str(chunk.end_offset)))
    return Read(chunk.end_offset, events)


class LogStreamView(PermissionView, View):
    """Server-sent events: ``lines`` (new text; the id is the byte offset behind it), ``anew`` (the file was
    replaced: what follows is its beginning) and ``trouble``."""

    permission = "engine.log"

    def get(self, request: HttpRequest, pk: int) -> StreamingHttpResponse:
        start = start_of(request, pk)
        offset = whole_number(last_event_id(request) or request.GET.get("from")) or 0

        return event_stream(
            lambda offset: follow(start, offset),
            offset,
            may_go_on=still_allowed(request, self.permission),
            host=str(start.engine.host_id),
            every_s=TAIL_EVERY_S,
        )


class LogDownloadView(PermissionView, View):
    permission = "engine.log"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        start = start_of(request, pk)
        try:
            pieces = logs.copy(start)
        except HostError as error:
            messages.error(request, f"{error.message} {error.remedy}".strip())
            return redirect(f"{reverse('engines:engine_log', args=[pk])}?start={start.number}")
        response = PieceByPiece(pieces, content_type="text/plain; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="engine-{pk}-start-{start.number}.log"'
        return response
