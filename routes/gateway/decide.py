"""From a whole request to what is to be done with it: the checks in their order. Pure apart from ``app``."""

from __future__ import annotations

import zlib

from routes.gateway.asked import Asked
from routes.gateway.faults import Fault
from routes.gateway.forms import model_of_form
from routes.gateway.paths import Path
from routes.gateway.records import KeyRecord, RouteRecord, Snapshot

#: names told to a caller whose model is not there
NAMED = 30


def plain_body(body: bytes, coding: bytes, limit: int) -> bytes:
    """The body without its content coding. Raises Fault 400, 413 or 415."""
    coding = coding.strip().lower()
    if coding in {b"", b"identity"}:
        return body
    if coding in {b"gzip", b"x-gzip"}:
        reader = zlib.decompressobj(31)
    elif coding == b"deflate":
        reader = zlib.decompressobj()
    else:
        raise Fault(
            415,
            "content_encoding",
            "The gateway reads bodies in gzip, deflate or plain; this one says "
            f"{coding[:40].decode('latin-1')!r}.",
        )
    try:
        plain = reader.decompress(body, limit + 1)
    except zlib.error:
        raise Fault(
            400, "content_encoding", f"The body is not {coding.decode('latin-1')}, as its header says."
        ) from None
    if len(plain) > limit:
        raise Fault(413, "body_too_large", f"The body is larger than {limit} bytes once unpacked.")
    if not reader.eof or reader.unused_data:
        raise Fault(400, "content_encoding", "The packed body is not complete, or has more behind its end.")
    return plain


def callable_routes(snapshot: Snapshot, key: KeyRecord) -> list[RouteRecord]:
    """What this key may call, by name, each once."""
    found = {route.id: route for route in snapshot.routes.values() if may_call(key, route) and route.enabled}
    return sorted(found.values(), key=lambda route: route.name)


def may_call(key: KeyRecord, route: RouteRecord) -> bool:
    return key.models is None or route.name in key.models


def find_route(snapshot: Snapshot, key: KeyRecord, model: str) -> RouteRecord:
    """Raises Fault 404 for a name that is no route's, 403 for one that this key may not call."""
    route = snapshot.routes.get(model) or snapshot.routes.get(model.strip())
    if route is None:
        raise Fault(
            404,
            "model_not_found",
            f"There is no model {model[:200]!r} here. {_names(snapshot, key)}",
            param="model",
        )
    if not may_call(key, route):
        raise Fault(
            403,
            "model_not_allowed",
            f"The key {key.name!r} may not call {model!r}. {_names(snapshot, key)}",
            param="model",
        )
    if not route.enabled:
        raise Fault(
            503,
            "route_disabled",
            f"The model {model!r} is switched off at the moment. {_names(snapshot, key)}",
            param="model",
            retry_after_s=60,
        )
    return route


def _names(snapshot: Snapshot, key: KeyRecord) -> str:
    names = [route.name for route in callable_routes(snapshot, key)]
    if not names:
        return "This key may call no model at present."
    shown = ", ".join(names[:NAMED])
    return f"This key may call: {shown}{' and more' if len(names) > NAMED else ''}."


def read_form(body: bytes, content_type: bytes) -> Asked:
    model = model_of_form(body, content_type)
    return Asked(model)


def no_target_fault(route: RouteRecord, reasons: list[str], retry_after_s: float) -> Fault:
    said = f" ({'; '.join(reasons)})" if reasons else ""
    return Fault(
        503,
        "no_target_available",
        f"No engine of the model {route.name!r} can take a request now{said}. Try again in a while.",
        retry_after_s=max(1.0, retry_after_s),
    )


def lacking_fault(route: RouteRecord, path: Path, names: list[str]) -> Fault:
    return Fault(
        404,
        "path_not_served",
        f"{' and '.join(names)} of the model {route.name!r} {'does' if len(names) == 1 else 'do'} not serve "
        f"/v1/{path.name}.",
    )
