"""An engine's answer on its way to the caller: read as far as it must be, written at once."""

from __future__ import annotations

from time import monotonic

import orjson

from routes.gateway import heads
from routes.gateway.counts import counts_in
from routes.gateway.exchangestate import State
from routes.gateway.faults import Fault, engine_fault, fault_event, judge_error
from routes.gateway.renaming import renamed, renamed_head
from routes.gateway.responses import id_at_the_head
from routes.gateway.sse import Stream
from routes.gateway.standing import answer_lines
from routes.gateway.upstream import AnswerHead, Failure

#: an answer up to this size is read whole before it is passed on
WHOLE_MAX = 256 << 10
#: of a larger one, this much of its end is kept for the usage in it
TAIL = 8 << 10
#: of an error, more is not read
ERROR_MAX = 64 << 10


class Answering(State):
    __slots__ = ()

    # what the connection to the target tells

    def answer_whole(self, head: AnswerHead, body: bytes) -> None:
        """All of a small answer at once; the connection it came on may serve another request already."""
        self.upstream = None
        self.first_at = monotonic()
        self.head, self.status, self.size = head, head.status, len(body)
        self._end_whole(body)

    def answer_head(self, head: AnswerHead) -> None:
        status, headers = head.status, head.headers
        self.head, self.status = head, status
        if status == 200 and headers.get(b"content-type", b"")[:17].lower() == b"text/event-stream":
            self.mode = "stream"
            self.streamed = True
            self.stream = Stream(
                self.path.kind,
                self.asked.model,
                drop_usage=self.drop_usage,
                drop_continuous=self.drop_continuous,
            )
        else:
            self.mode = "whole"
        if self.request.method == b"HEAD" and status < 300:
            self._alive()
            # of an answer by id another name changes the length
            same = self.path.kind != "response" or self.target.record.model in {"", self.asked.model}
            length = headers.get(b"content-length") if same else None
            self.settle(status)
            self.finish(self._begin(b"content-length: %b\r\n" % length if length else b""))

    def answer_body(self, data: bytes) -> None:
        if not self.first_at:
            self.first_at = monotonic()
            self.idle_at = self.first_at + self.serving.idle_s
        stream = self.stream
        if stream is not None:
            data = stream.feed(data)
            if data:
                self.out.append(data)
            return
        if self.mode == "whole":
            self.size += len(data)
            if self.status >= 300 and self.size > ERROR_MAX:
                return
            self.parts.append(data)
            if self.size > WHOLE_MAX and self.status < 300:
                self._begin_passing()
            return
        self.out.append(data)

    def answer_chunk(self, chunk: bytes, start: int, end: int) -> None:
        """A piece that came as one chunk with its frame, from ``start`` to ``end``; it may go on as that."""
        stream = self.stream
        if stream is not None and self.begun and not self.request.http10 and stream.passes(chunk, end):
            self.connection.write(chunk)
        else:
            self.answer_body(chunk[start:end])
            self.answer_some()

    def _alive(self) -> None:
        """The target has shown that it works."""
        target = self.target
        if target is not None and target.health.answered():
            self.app.readmitted(target)

    def answer_some(self) -> None:
        """A piece has been read; the answer goes on."""
        out = self.out
        if not out:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        stream = self.stream
        if stream is None:
            self._pass(data)
            return
        if not self.begun:
            if stream.error is not None and not stream.completion_events:
                self._error_first(stream)
                return
            self._alive()
            self._made(stream.response_id)
            head = self._begin(b"")
        else:
            head = b""
        if stream.ended or stream.error is not None:
            self._settle_stream(stream)
        connection = self.connection
        if self.request.http10:
            connection.write(head + data)
        else:
            connection.write(b"%b%x\r\n%b\r\n" % (head, len(data), data))

    def answer_end(self) -> None:
        """The answer is whole, and the connection it came on may serve another request already."""
        upstream, self.upstream = self.upstream, None
        if self.mode == "stream":
            self._end_stream(cut=upstream is not None and upstream.until_close)
        elif self.mode == "pass":
            self._end_passing()
        else:
            self._end_whole(self.parts[0] if len(self.parts) == 1 else b"".join(self.parts))

    def answer_lost(self, failure: Failure) -> None:
        stream = self.stream
        if stream is not None and stream.ended:
            self.upstream = None
            self._end_stream(cut=False)
            return
        if not self.begun and failure.kind == "cut" and self.try_again_fresh():
            return
        self.upstream = None
        shown = self.target.shown if self.target else "The target"
        fault = Fault(502, "upstream_cut", f"{shown} of the model {self.route.name!r} {failure.text}.")
        if self.begun:
            if self.target is not None:
                self.target.health.failed(monotonic(), failure.text, at_once=False)
            self.break_off(fault)
        else:
            self.attempt_failed(fault, failure.text)

    # streams

    def _begin(self, framing: bytes) -> bytes:
        """The head of an answer that goes on; nothing may be retried from here."""
        self.begun = True
        if not framing and not self.request.http10:
            framing = b"transfer-encoding: chunked\r\n"
        return b"%b%b%b%b\r\n" % (
            heads.status_line(self.status),
            self.head.lines,
            framing,
            self._own_lines(),
        )

    def _settle_stream(self, stream: Stream) -> None:
        error = stream.error
        self._made(stream.response_id)
        if error is None:
            self.settle(self.status)
        else:
            code = engine_fault(error.status or 500, error, "").code
            self.settle(self.status, "engine", code)

    def _error_first(self, stream: Stream) -> None:
        """Status 200, and then an error before anything else: it can still become an answer of its own."""
        error = stream.error
        status = error.status if error.status and 400 <= error.status < 600 else 500
        target = self.target
        fault = engine_fault(status, error, target.shown)
        upstream, self.upstream = self.upstream, None
        if upstream is not None and upstream.taker is self:
            upstream.abort()
        if status >= 500:
            self.attempt_failed(fault, f"answered with an error ({status})")
        else:
            self.refuse(fault)

    def _end_stream(self, *, cut: bool) -> None:
        stream = self.stream
        if cut and not stream.ended:
            text = "ended its stream without [DONE]"
            self.stream = stream
            fault = Fault(
                502, "upstream_cut", f"{self.target.shown} of the model {self.route.name!r} {text}."
            )
            if self.begun:
                self.break_off(fault)
            else:
                self.attempt_failed(fault, text)
            return
        self.out.append(stream.finish())
        data = b"".join(self.out)
        self.out.clear()
        if not self.begun and stream.error is not None and not stream.completion_events:
            self._error_first(stream)
            return
        self._alive()
        head = b"" if self.begun else self._begin(b"")
        self._settle_stream(stream)
        if self.request.http10:
            self.finish(head + data)
        elif data:
            self.finish(b"%b%x\r\n%b\r\n0\r\n\r\n" % (head, len(data), data))
        else:
            self.finish(head + b"0\r\n\r\n")

    def break_off(self, fault: Fault) -> None:
        """The answer has begun and cannot go on: a stream gets an error for its last event, and no [DONE];
        of anything else the connection is cut, so that it does not look whole."""
        stream = self.stream
        self.settle(self.status, fault.layer, fault.code)
        if stream is None:
            self.close()
            self.connection.cut()
            return
        event = fault_event(fault, self.id, self.path.kind)
        if self.request.http10:
            self.finish(event)
        else:
            self.finish(b"%x\r\n%b\r\n0\r\n\r\n" % (len(event), event))

    # small answers and errors

    def _end_whole(self, body: bytes) -> None:
        status = self.status
        if status >= 300:
            self._engine_error(status, body)
            return
        target, path = self.target, self.path
        if target.health.answered():
            self.app.readmitted(target)
        if path.counted:
            self.counts = counts_in(body)
            body = renamed(body, target.record.model, self.asked.model)
            if path.kind == "responses":
                self._remember(body)
        elif path.kind == "response":
            body = renamed(body, self.target.record.model, self.asked.model)
        self.send_whole(status, body, self.head.lines)

    def _remember(self, body: bytes) -> None:
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError:
            return
        if isinstance(value, dict) and isinstance(value.get("id"), str):
            self._made(value["id"])

    def _made(self, response_id: str) -> None:
        """A response that can be asked for by this id, or gone on from."""
        if response_id and self.caller and self.target:
            self.app.responses.remember(response_id, self.target.record.id, self.caller.key.business_id)

    def _engine_error(self, status: int, body: bytes) -> None:
        verdict, fault, reason = judge_error(
            status,
            body,
            self.target.shown,
            self.route.name,
            self.path.name,
            by_id=self.path.kind == "response",
        )
        fault.retry_after_s = fault.retry_after_s or _seconds(self.head.headers.get(b"retry-after"))
        if verdict == "failed":
            self.attempt_failed(fault, reason)
            return
        self._alive()
        if verdict == "elsewhere":
            self.next_or(fault)
        else:
            self.refuse(fault)

    # large answers

    def _begin_passing(self) -> None:
        """Too large to be kept: what is here goes out, and the rest as it comes."""
        self.mode = "pass"
        self._alive()
        data = b"".join(self.parts)
        if self.path.kind == "responses":
            self._made(id_at_the_head(data))
        self.parts = []
        length = self.head.headers.get(b"content-length")
        own, name = self.target.record.model, self.asked.model
        head = renamed_head(data, own, name) if self.path.counted or self.path.kind == "response" else data
        if length is not None and length.isdigit():
            framing = b"content-length: %d\r\n" % (int(length) + len(head) - len(data))
        else:
            framing = b""
        self.size = 0 if framing else 1
        self.out.append(head)
        self.parts = [framing]

    def _pass(self, data: bytes) -> None:
        if not self.begun:
            framing = self.parts[0]
            self.parts = []
            head = self._begin(framing)
            if framing == b"" and not self.request.http10:
                self.size = 1
        else:
            head = b""
        self._keep_tail(data)
        self.connection.write(head + self._framed(data))

    def _framed(self, data: bytes) -> bytes:
        if not self.size or self.request.http10:
            return data
        return b"%x\r\n%b\r\n" % (len(data), data) if data else b""

    def _keep_tail(self, data: bytes) -> None:
        self.parts.append(data[-TAIL:])
        if len(self.parts) > 32:
            self.parts = [b"".join(self.parts)[-TAIL:]]

    def _end_passing(self) -> None:
        data = b"".join(self.out)
        self.out.clear()
        if not self.begun:
            head = self._begin(self.parts[0])
            self.parts = []
        else:
            head = b""
        self._keep_tail(data)
        if self.path.counted:
            self.counts = counts_in(b" " + b"".join(self.parts)[-TAIL:])
        self.settle(self.status)
        end = b"0\r\n\r\n" if self.size and not self.request.http10 else b""
        self.finish(head + self._framed(data) + end)

    # to the caller

    def _own_lines(self) -> bytes:
        """Headers of every answer."""
        request, grant = self.request, self.grant
        standing = request.standing
        lines = b"x-request-id: %b\r\n%b%b" % (
            self.id.encode(),
            answer_lines(request.headers) if standing is None else standing.lines,
            grant.lines() if grant is not None else b"",
        )
        if self.path.anthropic:
            # where Anthropic's own clients look for it
            lines += b"request-id: %b\r\n" % self.id.encode()
        if not request.keep or self.app.draining:
            lines += b"connection: close\r\n"
        return lines

    def send_whole(self, status: int, body: bytes, lines: bytes, layer: str = "", code: str = "") -> None:
        """The answer in one piece. ``lines`` are headers beside the gateway's own."""
        if self.over:
            return
        self.status = status
        self.settle(status, layer, code)
        length = b"" if status == 204 else b"content-length: %d\r\n" % len(body)
        if self.request.method == b"HEAD":
            body = b""
        self.finish(b"%b%b%b%b\r\n%b" % (heads.status_line(status), lines, length, self._own_lines(), body))

    def finish(self, data: bytes) -> None:
        """Write the caller's last bytes."""
        self.begun = True
        self.close()
        connection = self.connection
        if data:
            connection.write_last(data)
        connection.finished(keep=self.request.keep)

    def caller_slow(self) -> None:
        """The caller takes nothing at the moment: nothing more is read from the engine."""
        self.held_back = True
        upstream = self.upstream
        if upstream is not None and upstream.transport is not None:
            upstream.transport.pause_reading()

    def caller_ready(self) -> None:
        self.held_back = False
        self.heard = True
        upstream = self.upstream
        if upstream is not None and upstream.transport is not None:
            upstream.transport.resume_reading()

    def tokens(self, status: int) -> tuple[int, int, int, str]:
        """(prompt, cached, completion, where they come from) as far as the request got."""
        if not self.path.counted or not self.sent_at:
            return 0, 0, 0, ""
        stream, counts = self.stream, self.counts
        if stream is not None:
            return self._stream_tokens(stream, status)
        if counts is not None:
            return counts.prompt, counts.cached, counts.completion, "engine"
        if status == 499:
            return self.prompt_estimate, 0, 0, "estimated"
        # where nothing was said at all, nothing was worked out that could be charged
        if status < 400 and (self.size or self.mode == "pass"):
            return self.prompt_estimate, 0, self.size // 4, "estimated"
        return 0, 0, 0, ""

    def _stream_tokens(self, stream: Stream, status: int) -> tuple[int, int, int, str]:
        counts = stream.counts
        if counts is not None and stream.final:
            return counts.prompt, counts.cached, counts.completion, "engine"
        if counts is not None and counts.completion:
            return counts.prompt, counts.cached, counts.completion, "partial"
        if (stream.error is not None and not self.begun) or (status == 200 and not stream.completion_events):
            return 0, 0, 0, ""
        prompt, cached = (counts.prompt, counts.cached) if counts else (self.prompt_estimate, 0)
        # the first event of a stream says who speaks
        return prompt, cached, max(0, stream.completion_events - 1), "estimated"


def _seconds(value: bytes | None) -> float | None:
    return float(value) if value is not None and value.isdigit() and len(value) < 6 else None
