"""Errors as callers get them: OpenAI's shape, Anthropic's on its own paths; and what engines answer. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

#: statuses that say more of how the gateway calls the target than of the caller's request
MISCALLED = frozenset({401, 403, 407})
OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
ANTHROPIC_TYPES = {
    **OPENAI_TYPES,
    413: "request_too_large",
    503: "overloaded_error",
    504: "timeout_error",
}


@dataclass(slots=True, eq=False)
class Fault(Exception):
    """Why a request is not answered as asked. ``layer`` is gateway or engine; ``kind`` an error type in
    OpenAI's words, found by the status when empty. ``message`` never holds a key."""

    status: int
    code: str
    message: str
    layer: str = "gateway"
    kind: str = ""
    param: str | None = None
    retry_after_s: float | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.message}"


def openai_type(status: int) -> str:
    return OPENAI_TYPES.get(status) or ("invalid_request_error" if status < 500 else "server_error")


def anthropic_type(status: int) -> str:
    return ANTHROPIC_TYPES.get(status) or ("invalid_request_error" if status < 500 else "api_error")


def fault_value(fault: Fault, request_id: str, *, anthropic: bool) -> dict[str, Any]:
    """The error object of an answer."""
    own = {"code": fault.code, "layer": fault.layer, "request_id": request_id}
    if anthropic:
        inner = {"type": anthropic_type(fault.status), "message": fault.message, **own}
        return {"type": "error", "error": inner, "request_id": request_id}
    kind = fault.kind or openai_type(fault.status)
    return {"error": {"message": fault.message, "type": kind, "param": fault.param, **own}}


def fault_body(fault: Fault, request_id: str, *, anthropic: bool) -> bytes:
    return orjson.dumps(fault_value(fault, request_id, anthropic=anthropic))


def fault_event(fault: Fault, request_id: str, kind: str) -> bytes:
    """The error as the last event of a stream. ``kind`` is the path's (paths.py)."""
    if kind == "messages":
        return b"event: error\ndata: " + fault_body(fault, request_id, anthropic=True) + b"\n\n"
    if kind == "responses":
        value = {
            "type": "error",
            "code": fault.code,
            "message": fault.message,
            "param": fault.param,
            "layer": fault.layer,
            "request_id": request_id,
        }
        return b"event: error\ndata: " + orjson.dumps(value) + b"\n\n"
    return b"data: " + fault_body(fault, request_id, anthropic=False) + b"\n\n"


@dataclass(slots=True, frozen=True)
class EngineError:
    """What an engine said. ``code`` and ``status`` are as it gave them, None where it did not."""

    message: str
    kind: str = ""
    param: str | None = None
    code: str | None = None
    status: int | None = None


def engine_error(value: Any) -> EngineError | None:
    """One of the shapes: ``{"error": {...}}``, flat with ``"object": "error"``, ``{"error": "text"}``,
    FastAPI's ``{"detail": ...}``, Anthropic's; None for what is no error."""
    if not isinstance(value, dict):
        return None
    inner = value.get("error")
    if isinstance(inner, str) and inner:
        return EngineError(inner)
    if isinstance(inner, dict):
        return _from_fields(inner)
    if value.get("object") == "error" or value.get("type") == "error":
        return _from_fields(value)
    if "detail" in value and "choices" not in value:
        detail = value["detail"]
        return EngineError(detail if isinstance(detail, str) else orjson.dumps(detail).decode()[:2000])
    return None


def _from_fields(fields: dict[str, Any]) -> EngineError:
    message, kind, param, code = (fields.get(name) for name in ("message", "type", "param", "code"))
    status = code if isinstance(code, int) and not isinstance(code, bool) else None
    return EngineError(
        message if isinstance(message, str) else orjson.dumps(message).decode(),
        kind if isinstance(kind, str) else "",
        param if isinstance(param, str) else None,
        code if isinstance(code, str) else None,
        status,
    )


def engine_fault(status: int, found: EngineError | None, target: str) -> Fault:
    """An engine's answer of 400 and above as a fault of its layer; the status stays."""
    if found is None:
        return Fault(
            status, "engine_error", f"{target} answered with status {status} and no message.", "engine"
        )
    code = found.code or _code(status, found)
    return Fault(status, code, found.message, "engine", found.kind or openai_type(status), found.param)


def _code(status: int, found: EngineError) -> str:
    text = found.message
    if "maximum context length" in text or "max_model_len" in text or "maximum model length" in text:
        return "context_length_exceeded"
    named = {400: "invalid_request", 404: "not_found", 429: "rate_limit_exceeded", 503: "engine_busy"}
    return named.get(status, "engine_error" if status >= 500 else "invalid_request")


#: failed: it is the target's failure, and another may be tried; elsewhere: another may be tried;
#: refuse: it is the answer
Verdict = Literal["failed", "elsewhere", "refuse"]


def judge_error(
    status: int, body: bytes, target: str, model: str, path: str, *, by_id: bool
) -> tuple[Verdict, Fault, str]:
    """An engine's answer of 300 and above: (what follows, the error, the reason if the target failed).

    ``target`` begins a sentence ("The target ..."); ``by_id``: a thing made before is asked for.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = None
    found = engine_error(value)
    fault = engine_fault(status, found, target)
    whose = f"{target} of the model {model!r}"
    if status >= 500:
        return "failed", fault, f"answered with status {status}"
    if status < 400:
        text = f"{whose} sends requests elsewhere ({status}). An administrator has to correct its base URL."
        return "failed", Fault(502, "target_redirects", text, "engine"), f"redirects (status {status})"
    if status in MISCALLED:
        text = f"{whose} refuses the gateway's own key. Its administrator has to enter the right one."
        return (
            "failed",
            Fault(502, "target_key_refused", text, "engine"),
            f"refuses the gateway's key ({status})",
        )
    if status == 404 and found is not None and not by_id and "model" in found.message:
        text = f"{whose} does not serve the model its route asks for. An administrator has to correct it."
        fault = Fault(502, "target_model_missing", text, "engine")
        return "failed", fault, "does not serve the model it is asked for"
    if status in {404, 405} and isinstance(value, dict) and set(value) == {"detail"}:
        text = f"{whose} does not serve /v1/{path}."
        return "elsewhere", Fault(404, "path_not_served", text, "engine"), ""
    return "refuse", fault, ""
