"""One request, from the moment it is whole until its answer is written and recorded.

States: deciding, limiting, choosing, connecting, waiting, then whole, passing or streaming, and over.
docs/gateway.md has the table of them.

In every state: the caller goes, or the total time is over. Whatever happens, ``_settle`` runs once: the grant
is settled and released, the usage row is in the ledger before the caller has its last byte.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import structlog

from kvadmin.forwarded import parse_address
from routes.gateway import asked as reading
from routes.gateway import heads
from routes.gateway.answering import Answering
from routes.gateway.asked import Asked
from routes.gateway.choose import candidates, choose
from routes.gateway.credentials import check_key, find_key, presented
from routes.gateway.decide import find_route, nobody_fault, plain_body, preflight, read_form, unknown_path
from routes.gateway.faults import Fault, fault_body
from routes.gateway.forms import with_model
from routes.gateway.local import answer_locally
from routes.gateway.paths import Found, Path, find_path
from routes.gateway.protocol import MAX_BODY
from routes.gateway.records import RouteRecord, UsageRecord
from routes.gateway.responses import check_named, maker
from routes.gateway.standing import Standing
from routes.gateway.targets import Target
from routes.gateway.upstream import Failure, UpstreamConnection

#: a fallback has a fallback, and so on, this often
FALLBACKS = 3
CALLER_GONE = 499
OWN_KINDS = frozenset({"health", "ready", "metrics"})

logger = structlog.get_logger("routes.gateway")


class Exchange(Answering):
    """Begins with the whole request; the connection is told when it is over."""

    __slots__ = ()

    # deciding

    def begin(self) -> None:
        self.app.exchanges.add(self)
        try:
            self._decide()
        except Fault as fault:
            self.refuse(fault)

    def _decide(self) -> None:
        request, app = self.request, self.app
        standing = request.standing
        if standing is None:
            standing = self._stand()
            if standing is None:
                return
            request.standing = standing
        path = self.path = standing.path
        self.address = standing.address
        self._authenticate(standing)
        if path.engine and path.kind != "response":
            self._read(path)
        elif path.kind == "response":
            self._by_response(standing.found)
        else:
            body = answer_locally(app.feed.snapshot, self._key(), standing.found, request.headers)
            self.send_whole(200, body, b"content-type: application/json\r\n")

    def _stand(self) -> Standing | None:
        """What the head says; None if that was answered at once."""
        request, app = self.request, self.app
        found = find_path(request.target)
        if request.method == b"OPTIONS":
            self.send_whole(204, b"", heads.header_lines(preflight(request.headers)))
            return None
        if found is None:
            raise unknown_path(request.target)
        path = self.path = found.path
        method = b"GET" if request.method == b"HEAD" else request.method
        if method != path.wire_method:
            raise Fault(
                405,
                "method_not_allowed",
                f"/{'' if path.kind in OWN_KINDS else 'v1/'}{path.name} answers {path.method} only.",
                headers={"allow": f"{path.method}, OPTIONS"},
            )
        if path.kind in OWN_KINDS:
            if path.kind == "metrics":
                self._private_only()
            status, body, kind = app.own_page(path.kind)
            self.send_whole(status, body, b"content-type: %b\r\n" % kind)
            return None
        return Standing(found, request.headers, app.address_of(self.connection.peer, request.headers))

    def _private_only(self) -> None:
        """Figures of all businesses are not for everyone who has a way to the gateway."""
        address = parse_address(self.app.address_of(self.connection.peer, self.request.headers))
        if address is None or not address.is_private:
            raise Fault(
                403,
                "address_not_allowed",
                f"/metrics answers this machine and private networks, and not {address}.",
            )

    def _authenticate(self, standing: Standing) -> None:
        feed = self.app.feed
        state = feed.state
        if state == "loading" or state == "expired":
            said = (
                "The gateway has not read its keys and routes yet."
                if state == "loading"
                else "The gateway has not reached its database for too long to know which keys are valid."
            )
            raise Fault(503, "gateway_not_ready", f"{said} Try again in a moment.", retry_after_s=2)
        snapshot = feed.snapshot
        caller = standing.caller
        if caller is not None and snapshot.by_id.get(caller.key.id) is caller.key:
            self.caller = caller
            if caller.key.ends_at is not None:
                check_key(caller, self.address, self.wall)
            return
        # kept before it is checked: what is refused is in the key's bill as well
        self.caller = caller = find_key(presented(self.request.headers), snapshot, self.app.pepper, self.wall)
        check_key(caller, self.address, self.wall)
        # the console's tokens end by themselves
        standing.caller = caller if not caller.via else None

    def _key(self) -> Any:
        return self.caller.key

    def _read(self, path: Path) -> None:
        request = self.request
        coding = request.headers.get(b"content-encoding")
        if coding is not None:
            request.body = plain_body(request.body, coding, MAX_BODY)
        if path.kind == "audio":
            asked = read_form(request.body, request.headers.get(b"content-type", b""))
        else:
            asked = reading.read_body(request.body, path)
        self.asked, self.streamed = asked, asked.stream
        if asked.previous_response or asked.own_response:
            self._with_responses(asked.previous_response, self._check_named, asked.own_response)
        else:
            self._route_it()

    def _check_named(self) -> None:
        check_named(self.app.responses, self.asked, self._key().business_id)
        self._route_it()

    def _route_it(self) -> None:
        request, app, path, asked = self.request, self.app, self.path, self.asked
        route = self.route = self.serving = find_route(app.feed.snapshot, self.caller.key, asked.model)
        if asked.limits is not None and route.max_tokens is not None:
            self.limits = reading.limit_edits(asked, route)
        size = len(request.body) if path.counted and path.kind != "audio" else 0
        self.prompt_estimate, tokens = reading.estimate(asked, size, app.targets.known(route).longest)
        if not path.counted:
            tokens = 0
        self._limit(tokens)

    def _by_response(self, found: Found) -> None:
        """An answer that was made before is asked for again, of the engine that made it."""
        query = self.request.target.partition(b"?")[2].decode("latin-1")
        self.rest = found.rest + ("/cancel" if found.path.name.endswith("cancel") else "")
        self.rest += f"?{query}" if query else ""
        self._with_responses(found.rest, lambda: self._to_maker(found.rest))

    def _to_maker(self, response_id: str) -> None:
        app, key = self.app, self._key()
        made_by = app.targets.serving(maker(app.responses, response_id, key.business_id))
        if made_by is None:
            raise Fault(404, "response_not_found", "The engine that made this response is gone.")
        self.only, self.route = made_by
        self.serving = self.route
        self.asked = Asked(self.route.name)
        find_route(app.feed.snapshot, key, self.route.name)
        self._limit(0)

    def _with_responses(self, wanted: str, then: Callable[[], None], own: str = "") -> None:
        """Go on with ``then``, after asking elsewhere who made what is not known here."""
        responses = self.app.responses
        if responses.knows(wanted) and responses.knows(own):
            then()
        else:
            asking = responses.ask_elsewhere(wanted, own)
            self.task = self.app.loop.create_task(self._wait_for(asking, lambda _nothing: then()))

    def early(self) -> Fault | None:
        """Why the request would be refused whatever its body is."""
        request, app = self.request, self.app
        found = find_path(request.target)
        if found is None:
            return unknown_path(request.target)
        self.path = found.path
        self.address = app.address_of(self.connection.peer, request.headers)
        try:
            self._authenticate(Standing(found, request.headers, self.address))
        except Fault as fault:
            return fault
        return None

    # limiting

    def _limit(self, tokens: int) -> None:
        self.total_at = self.began + self.route.total_s
        self.app.sweeper.members.add(self)
        taken = self.app.limits.take(self.caller.key, tokens, self.wall)
        if getattr(taken, "granted", None) is not None:
            self._limited(taken)
        else:
            self.task = self.app.loop.create_task(self._wait_for(taken, self._limited))

    async def _wait_for(self, waiting: Awaitable[Any], then: Callable[[Any], None]) -> None:
        try:
            found = await waiting
            if self.over:
                if hasattr(found, "release"):
                    found.release()
                return
            self.task = None
            then(found)
        except Fault as fault:
            self.refuse(fault)
        except Exception as error:  # noqa: BLE001 (nobody waits for this task: the exchange has to end here)
            self.task = None
            self.crashed(error)

    def _limited(self, taken: Any) -> None:
        if not taken.granted:
            raise Fault(
                429,
                taken.code,
                taken.message,
                retry_after_s=taken.retry_after_s,
                headers=dict(taken.headers),
            )
        self.grant = taken
        self._try_next()

    # choosing

    def _try_next(self) -> None:
        """Send to the next target; raises Fault when there is none."""
        app, path = self.app, self.path
        now = monotonic()
        for _ in range(FALLBACKS + 1):
            route = self.serving
            target = self._choose(route, now)
            if target is not None:
                self._attempt(target, route)
                return
            following = app.feed.snapshot.routes.get(route.fallback) if route.fallback else None
            if following is None or following.id in self.visited or not following.enabled or self.only:
                break
            self.visited = (*self.visited, route.id)
            try:
                limits = reading.limit_edits(self.asked, following)
            except Fault:
                break
            self.serving, self.limits = following, {**self.limits, **limits}
        raise self.last_fault or nobody_fault(self.route, app.targets.of(self.route), path, now)

    def _choose(self, route: RouteRecord, now: float) -> Target | None:
        app = self.app
        if self.only is None and not self.tried:
            # most routes have one target, and there is nothing to choose
            only = app.targets.known(route).only(self.path)
            if only is not None and (probe := only.health.take(now)) is not None:
                self.probe = probe
                return only
        if route.policy == "prefix_affinity" and not self.mark:
            self.mark = reading.prefix_mark(self.request.body)
        known = [self.only] if self.only else app.targets.of(route)
        preferred = self.asked.previous_response
        if preferred:
            made_by = app.responses.find(preferred, self._key().business_id)
            known = [target for target in known if target.record.id == made_by] or known
        fit = candidates(route, known, self.path, self.tried, now)
        while fit:
            app.turn += 1
            target: Target = choose(route, fit, self.mark, app.turn)  # type: ignore[assignment]
            probe = target.health.take(now)
            if probe is not None:
                self.probe = probe
                return target
            fit.remove(target)
        return None

    def _attempt(self, target: Target, route: RouteRecord) -> None:
        self.target = self.last_target = target
        if self.attempts:
            self.forget_answer()
            self.refreshed = False
        self.tried = (*self.tried, target.record.id)
        self.attempts += 1
        target.in_flight += 1
        self.task = target.origin.acquire(self, route.connect_s)

    # what a connection tells

    def connected(self, connection: UpstreamConnection) -> None:
        self.task = None
        if self.over:
            connection.park()
            return
        self.upstream = connection
        target, request, path = self.target, self.request, self.path
        body = request.body
        model = target.record.model or self.serving.name
        standing = request.standing
        if path.kind == "audio":
            if model != self.asked.model:
                body = with_model(body, standing.kind, model)
        elif body and path.kind != "response":
            asked = self.asked
            ask = asked.stream and (path.kind == "chat" or path.kind == "completions")
            continuous = ask and self.serving.continuous_usage
            if ask:
                self.drop_usage = not asked.wants_usage
                self.drop_continuous = continuous and not asked.wants_continuous
            body = reading.edited(
                body, asked, model=model, limits=self.limits, usage=ask, continuous=continuous
            )
        head = b"%bcontent-length: %d\r\nx-request-id: %b\r\n\r\n" % (
            standing.head_for(target, self.rest),
            len(body),
            self.id.encode(),
        )
        now = monotonic()
        self.sent_at = now
        self.first_byte_at = now + self.serving.first_byte_s
        connection.send(self, head, body)

    def connect_failed(self, failure: Failure) -> None:
        self.task = None
        if self.over:
            return
        timed_out = failure.kind == "timeout"
        fault = Fault(
            504 if timed_out else 503,
            "upstream_connect_timeout" if timed_out else "no_target_available",
            f"{self.target.shown} of the model {self.route.name!r} {failure.text}.",
            retry_after_s=1 if not timed_out else None,
        )
        self.attempt_failed(fault, failure.text, at_once=True)

    def attempt_failed(self, fault: Fault, reason: str, *, at_once: bool = False) -> None:
        """This target did not do: another one is tried, or the fault is the answer."""
        target = self.target
        if target.health.failed(monotonic(), reason, at_once=at_once):
            self.app.ejected(target)
        self.next_or(fault)

    def next_or(self, fault: Fault) -> None:
        self.leave_target()
        self.last_fault = fault
        try:
            self._try_next()
        except Fault as last:
            self.refuse(last)

    def try_again_fresh(self) -> bool:
        """A kept connection turned out to be closed: the same target on a new one. True if that is done."""
        upstream = self.upstream
        if upstream is None or not upstream.reused or upstream.started or self.refreshed:
            return False
        self.refreshed = True
        self.upstream = None
        self.forget_answer()
        self.task = self.target.origin.acquire(self, self.serving.connect_s, fresh=True)
        return True

    def leave_target(self) -> None:
        target, self.target = self.target, None
        if target is None:
            return
        target.in_flight -= 1
        if self.probe:
            target.health.undecided(self.probe)
        upstream, self.upstream = self.upstream, None
        if upstream is not None and upstream.taker is self:
            upstream.abort()
        task, self.task = self.task, None
        if task is not None:
            task.cancel()

    # ends

    def refuse(self, fault: Fault) -> None:
        """The answer is an error of the gateway's or the engine's; or the stream's last event."""
        if self.over:
            return
        if self.begun:
            self.break_off(fault)
            return
        path = self.path
        body = fault_body(fault, self.id, anthropic=path.anthropic)
        lines = b"content-type: application/json\r\n" + heads.header_lines(fault.headers)
        if fault.retry_after_s is not None:
            lines += b"retry-after: %d\r\n" % max(1, math.ceil(fault.retry_after_s))
        self.send_whole(fault.status, body, lines, fault.layer, fault.code)

    def crashed(self, error: BaseException) -> None:
        logger.error("the gateway failed over an answer", request=self.id, exc_info=error)
        try:
            self.refuse(Fault(500, "internal_error", "The gateway failed over this request."))
        finally:
            if not self.over:
                self.close()
                self.connection.cut()

    def caller_gone(self) -> None:
        if self.over:
            return
        self.settle(CALLER_GONE, "caller", "caller_gone")
        self.close()

    def caller_stuck(self) -> None:
        if self.over:
            return
        self.settle(CALLER_GONE, "caller", "caller_too_slow")
        self.close()

    def close(self) -> None:
        """The exchange is over: nothing of it is left anywhere."""
        self.over = True
        if self.target is not None:
            self.leave_target()
        if self.task is not None:
            self.task.cancel()
            self.task = None
        app = self.app
        app.exchanges.discard(self)
        app.sweeper.members.discard(self)

    def settle(self, status: int, layer: str = "", code: str = "") -> None:
        """The usage row and the grant, once."""
        if self.settled:
            return
        self.settled = True
        now = monotonic()
        grant = self.grant
        try:
            prompt, cached, completion, source = self.tokens(status)
        except BaseException:
            if grant is not None:
                grant.release()
            raise
        if grant is not None:
            grant.end(prompt + completion)
        caller, route, target = self.caller, self.route, self.last_target
        if caller is None and (self.path.kind in OWN_KINDS or self.request.method == b"OPTIONS"):
            return
        key = caller.key if caller else None
        row = UsageRecord(
            self.id,
            self.wall,
            key.id if key else 0,
            key.business_id if key else 0,
            key.team_id if key else 0,
            self.path.name or self.request.target[:200].decode("latin-1"),
            route.id if route else None,
            target.record.id if target else None,
            target.record.engine_id if target else None,
            route.name if route else "",
            status,
            layer,
            code,
            self.streamed,
            prompt,
            cached,
            completion,
            source,
            self.sent_at - self.began if self.sent_at else None,
            self.first_at - self.began if self.first_at else None,
            now - self.began,
            self.attempts,
            self.address,
            caller.via if caller else "",
            caller.user_id if caller else None,
        )
        self.app.record(row)

    # time

    def sweep(self, now: float) -> None:
        if self.over:
            return
        if now >= self.total_at:
            self._timed_out("total", "did not finish its answer", "the route's total time")
        elif self.upstream is None:
            return
        elif not self.first_at:
            if now >= self.first_byte_at:
                self._timed_out("first_byte", "did not begin an answer", "its time for the first byte")
        elif self.heard or self.held_back:
            self.heard = False
            self.idle_at = now + self.serving.idle_s
        elif now >= self.idle_at:
            self._timed_out("idle", "fell silent within its answer", "its time between two bytes")

    def _timed_out(self, kind: str, text: str, bound: str) -> None:
        seconds = {
            "total": self.serving.total_s,
            "first_byte": self.serving.first_byte_s,
            "idle": self.serving.idle_s,
        }[kind]
        shown = self.target.shown if self.target else "The target"
        fault = Fault(
            504,
            f"upstream_{kind}_timeout",
            f"{shown} of the model {self.route.name!r} {text} within {seconds:g} s, {bound}.",
        )
        if kind == "total" or self.begun or self.target is None:
            if self.target is not None and kind != "total":
                self.target.health.failed(monotonic(), text, at_once=False)
            self.refuse(fault)
        else:
            self.attempt_failed(fault, text)
