"""What a request asks for: the few fields that routing needs, and the edits that rules make to it. Pure.

A body is parsed once to be sure that it is JSON and to read those fields; what goes to the engine are the
caller's own bytes, with single values put in place.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from routes.gateway.faults import Fault
from routes.gateway.jsonspans import named, replaced
from routes.gateway.paths import Path
from routes.gateway.records import RouteRecord

#: what pydantic, and with it an engine, takes for true, in letters of any size
TRUE = {"true", "1", "on", "yes", "y", "t"}
#: more tokens than any engine takes
FAR = 1 << 62
#: of the beginning of a prompt's text, and of the body that it is looked for in
PREFIX_BYTES = 1024
PREFIX_WITHIN = 4 << 10
#: what a prompt begins with: one of these members, those whose strings are its text, and how many of them
FIRST = ((b'"system"', b'"instructions"'), frozenset({b"system", b"instructions", b"text"}), 1)
THEN = (
    (b'"messages"', b'"prompt"', b'"input"'),
    frozenset({b"content", b"text", b"prompt", b"input"}),
    PREFIX_BYTES,
)
#: members behind a prompt that have texts of their own
OTHERS = frozenset({b"system", b"instructions", b"tools"})
#: a string, or as much of it as there is; with a colon behind it a member's name
_STRING = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)(?:"(\s*:)?|\Z)', re.DOTALL)
#: by path: the field that holds one prompt or several
LISTS = {"completions": "prompt", "embeddings": "input", "rerank": "documents", "score": "text_2"}
MOST_CHOICES = 1024
#: tokens reserved for an answer whose length the caller left open
OPEN_ANSWER = 512
#: a token is seldom less than this many bytes of a body
BYTES_PER_TOKEN = 4


@dataclass(slots=True)
class Asked:
    """``model`` as the caller wrote it; ``limits`` are the fields that bound the answer, with their values.

    ``wants_usage``: the caller asked for the usage in a stream, so it stays in.
    """

    model: str
    stream: bool = False
    wants_usage: bool = False
    wants_continuous: bool = False
    has_stream_options: bool = False
    limits: dict[str, int] | None = None
    #: answers that the engine works out to each prompt, and prompts
    choices: int = 1
    prompts: int = 1
    previous_response: str = ""
    #: the id that the caller gives to its answer
    own_response: str = ""


def _forgiving(body: bytes, first: ValueError) -> Any:
    """What engines accept and the quick parser does not: half an emoji as an escape, NaN."""
    try:
        return json.loads(body.decode())
    except (ValueError, RecursionError):
        raise Fault(400, "invalid_json", f"The body is not valid JSON: {first}.") from None


def read_body(body: bytes, path: Path) -> Asked:
    """Raises Fault 400 with what to write instead."""
    if not body:
        raise Fault(400, "invalid_json", "The request has no body. Send JSON with at least `model`.")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        value = _forgiving(body, error)
    if not isinstance(value, dict):
        raise Fault(400, "invalid_json", "The body has to be a JSON object with at least `model`.")
    model = value.get("model")
    if not isinstance(model, str) or not model.strip():
        said = "has no `model`" if model is None else "has a `model` that is no text"
        raise Fault(
            400, "model_missing", f"The request {said}. Write the name of one; GET /v1/models lists them."
        )
    asked = Asked(model)
    stream = value.get("stream")
    if stream is not None and _true(stream):
        asked.stream = True
        options = value.get("stream_options")
        asked.has_stream_options = "stream_options" in value
        if isinstance(options, dict):
            asked.wants_usage = _true(options.get("include_usage"))
            asked.wants_continuous = _true(options.get("continuous_usage_stats"))
    for name in path.tokens:
        limit = value.get(name)
        if limit is not None and (number := _number(limit)) is not None:
            if asked.limits is None:
                asked.limits = {name: number}
            else:
                asked.limits[name] = number
    # a sequence that best_of has dropped was worked out all the same
    for name in ("n", "best_of"):
        choices = value.get(name)
        if choices is not None and (choices := _number(choices) or 0) > asked.choices:
            asked.choices = min(choices, MOST_CHOICES)
    if path.name in LISTS:
        asked.prompts = _prompts(value.get(LISTS[path.name]))
        if not path.tokens:
            asked.choices = 0
    if path.kind == "responses":
        asked.previous_response = _text(value.get("previous_response_id"))
        asked.own_response = _text(value.get("request_id"))
    return asked


def _prompts(value: Any) -> int:
    """How many there are in a field that takes one or a list; a list of numbers is one, as tokens."""
    if not isinstance(value, list) or not value or isinstance(value[0], int):
        return 1
    return len(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _true(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower() in TRUE
    return isinstance(value, (int, float)) and value == 1


def _number(value: Any) -> int | None:
    """As engines read it: text that holds a number is one to them."""
    if type(value) is int and -FAR < value < FAR:
        return value
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value = float(value[:100])
        except ValueError:
            return None
    if not isinstance(value, (int, float)):
        return None
    return int(value) if -FAR < value < FAR else -FAR if value < 0 else FAR


def estimate(asked: Asked, size: int, longest: int) -> tuple[int, int]:
    """(prompt, prompt and answer) in tokens, before the engine has counted: for reserving, not for bills.
    ``longest`` is what an engine takes at most of one prompt and its answer, 0 if that is not known."""
    prompts = asked.prompts
    prompt = size // BYTES_PER_TOKEN or 1
    if prompt > longest * prompts > 0:
        prompt = longest * prompts
    answer = min(asked.limits.values()) if asked.limits else OPEN_ANSWER
    if longest and answer > (most := longest - prompt // prompts):
        answer = most
    return prompt, prompt + (answer * asked.choices * prompts if answer > 0 else 0)


def prefix_mark(body: bytes) -> int:
    """A number that requests with an equal beginning of their prompt share: of its text, in whatever order
    its fields are, however it is spaced and escaped."""
    text: list[bytes] = []
    size = 0
    for names, texts, most in (FIRST, THEN):
        for part in _texts(body, _member(body, names), texts, most):
            text.append(part)
            size += len(part)
            if size >= PREFIX_BYTES:
                break
    return zlib.crc32(b"\0".join(text)[:PREFIX_BYTES] if text else body[:PREFIX_BYTES])


def _member(body: bytes, names: Sequence[bytes]) -> int:
    """Where the first of them that is there begins, or -1. Within a text their quotes would be escaped."""
    for name in names:
        at = body.find(name)
        while at >= 0 and body[at + len(name) : at + len(name) + 32].lstrip()[:1] != b":":
            at = body.find(name, at + 1)
        if at >= 0:
            return at
    return -1


def _texts(body: bytes, start: int, texts: frozenset[bytes], most: int) -> Iterator[bytes]:
    name = b""
    for string, colon in _STRING.findall(body[start : start + PREFIX_WITHIN]) if start >= 0 else ():
        if colon:
            name = string
            if name in OTHERS and b"content" in texts:
                return
        elif name in texts and string:
            yield _plain(string)
            most -= 1
            if not most:
                return


def _plain(text: bytes) -> bytes:
    """What a JSON string says. Its end may be missing."""
    if b"\\" not in text:
        return text
    for end in range(len(text), max(0, len(text) - 12), -1):
        try:
            return orjson.loads(b'"%b"' % text[:end]).encode()
        except orjson.JSONDecodeError:
            continue
    return text


def limit_edits(asked: Asked, route: RouteRecord) -> dict[str, int]:
    """Fields to lower, with their new values. Raises Fault 400 where the route refuses instead."""
    if not asked.limits or route.max_tokens is None or route.max_tokens_rule == "pass":
        return {}
    over = {name: value for name, value in asked.limits.items() if value > route.max_tokens}
    if not over:
        return {}
    if route.max_tokens_rule == "clamp":
        return dict.fromkeys(over, route.max_tokens)
    name, value = next(iter(over.items()))
    lengths = sorted({target.max_model_len for target in route.targets if target.max_model_len})
    engine = (
        f"its engines' max-model-len is {' or '.join(map(str, lengths))}"
        if lengths
        else "its engines' max-model-len is not known"
    )
    raise Fault(
        400,
        "max_tokens_too_large",
        f"{name} is {value}, and the route {route.name!r} allows {route.max_tokens} ({engine}, prompt "
        f"included). Ask for {route.max_tokens} or less.",
        param=name,
    )


def _json_text(text: str) -> bytes:
    try:
        return orjson.dumps(text)
    except orjson.JSONEncodeError:
        return json.dumps(text).encode()


def _model_change(body: bytes, model: bytes) -> list[tuple[int, int, bytes]]:
    return [(member.start, member.end, model) for member in named(body, "model")]


def _options_change(body: bytes, fields: dict[str, bool]) -> list[tuple[int, int, bytes]]:
    """Set these members of ``stream_options`` to true."""
    changes: list[tuple[int, int, bytes]] = []
    for options in named(body, "stream_options"):
        if body[options.start] != 0x7B:
            changes.append((options.start, options.end, orjson.dumps(fields)))
            continue
        added = b""
        for name in fields:
            present = named(body, name, options.start)
            changes += [(member.start, member.end, b"true") for member in present]
            if not present:
                empty = body[options.start + 1 : options.end - 1].strip() == b"" and not added
                added = b'"%b":true' % name.encode() + (b"" if empty else b",") + added
        if added:
            at = options.start + 1
            changes.append((at, at, added))
    return changes


def edited(
    body: bytes, asked: Asked, *, model: str, limits: dict[str, int], usage: bool, continuous: bool
) -> bytes:
    """The body for a target: its own model's name, lowered limits, the usage asked for in a stream."""
    changes: list[tuple[int, int, bytes]] = []
    if model != asked.model:
        old, new = b'"model":' + _json_text(asked.model), _json_text(model)
        # the usual case without a walk: written once, and no other way to write the name is used
        if body.count(b'"model"') == 1 and b"\\u006" not in body:
            at = body.find(old)
            if at < 0:
                at = body.find(b'"model": ' + old[8:])
                start = at + 9
            else:
                start = at + 8
            if at >= 0:
                changes.append((start, start + len(old) - 8, new))
        if not changes:
            changes = _model_change(body, new)
    elif body.count(b'"model"') > 1 or b"\\u006" in body:
        # of two models it is the last that was decided on; not every engine reads it so
        new = _json_text(model)
        changes = [
            change for change in _model_change(body, new) if json.loads(body[change[0] : change[1]]) != model
        ]
    elif not limits and not usage and not continuous:
        return body
    for name, value in limits.items():
        changes += [
            (member.start, member.end, b"%d" % value)
            for member in named(body, name)
            if _is_over(body[member.start : member.end], value)
        ]
    fields = {}
    if usage and not asked.wants_usage:
        fields["include_usage"] = True
    if continuous and not asked.wants_continuous:
        fields["continuous_usage_stats"] = True
    if fields:
        if asked.has_stream_options:
            changes += _options_change(body, fields)
        else:
            at = body.index(b"{") + 1
            changes.append((at, at, b'"stream_options":' + orjson.dumps(fields) + b","))
    return replaced(body, changes) if changes else body


def _is_over(text: bytes, limit: int) -> bool:
    number = _number(json.loads(text))
    return number is not None and number > limit
