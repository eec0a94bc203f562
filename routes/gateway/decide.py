"""From a whole request to what is to be done with it: the checks in their order. Pure apart from ``app``."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

from routes.gateway.asked import Asked
from routes.gateway.choose import Loaded
from routes.gateway.faults import Fault
from routes.gateway.forms import model_of_form
from routes.gateway.paths import Path, serves
from routes.gateway.records import KeyRecord, RouteRecord, Snapshot, TargetRecord

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


def nobody_fault(route: RouteRecord, targets: Sequence[Loaded], path: Path, now: float) -> Fault:
    """Why no target can take the request, and when to come again."""
    alive = [target.record for target in targets if target.record.state == "ready"]
    if alive and not any(serves(path, record.vllm_version) for record in alive):
        names = " and ".join(_called(record) for record in alive)
        verb = "does" if len(alive) == 1 else "do"
        return Fault(
            404,
            "path_not_served",
            f"{names} of the model {route.name!r} {verb} not serve /v1/{path.name}.",
        )
    reasons, waits = [], []
    for target in targets:
        record = target.record
        if record.state != "ready":
            reasons.append(f"{record.name or record.base_url} is {record.state}")
        elif target.health.reason:
            reasons.append(f"{record.name or record.base_url} {target.health.reason}")
            waits.append(target.health.opens_at - now)
    said = f" ({'; '.join(reasons[:5])})" if reasons else ""
    return Fault(
        503,
        "no_target_available",
        f"No engine of the model {route.name!r} can take a request now{said}. Try again in a while.",
        retry_after_s=max(1.0, min(waits, default=5.0)),
    )


def _called(record: TargetRecord) -> str:
    version = f" (vLLM {record.vllm_version})" if record.vllm_version else ""
    return f"{record.name or record.base_url}{version}"


def preflight(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """Headers of the answer to OPTIONS."""
    asked = headers.get(b"access-control-request-headers", b"").decode("latin-1").strip()
    return {
        "access-control-allow-methods": "GET, POST, OPTIONS",
        "access-control-allow-headers": asked[:1000]
        or "authorization, content-type, x-api-key, anthropic-version, anthropic-beta",
        "access-control-max-age": "86400",
        "vary": "access-control-request-headers",
        "allow": "GET, POST, OPTIONS",
    }


def unknown_path(target: bytes) -> Fault:
    path = target.partition(b"?")[0][:200].decode("latin-1")
    return Fault(
        404,
        "path_not_found",
        f"The gateway serves nothing at {path}. It serves /v1/models, /v1/chat/completions and the other "
        "paths that docs/gateway.md lists.",
    )
