"""Multipart forms (audio): the model's name in them, and another put in its place. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.message import Message

from routes.gateway.faults import Fault

MAX_PART_HEAD = 4096
_BOUNDARY = re.compile(rb";\s*boundary\s*[*=]", re.IGNORECASE)


@dataclass(slots=True, frozen=True)
class Part:
    """data[start:end] is the part's value."""

    name: str
    start: int
    end: int


def _boundary(content_type: bytes) -> bytes:
    message = Message()
    message["content-type"] = content_type.decode("latin-1")
    if message.get_content_type() != "multipart/form-data":
        raise Fault(
            400, "form_expected", "This path takes multipart/form-data with the fields `file` and `model`."
        )
    boundary = message.get_boundary()
    # of two boundaries an engine may take the other, and read another model
    if not boundary or len(boundary) > 70 or len(_BOUNDARY.findall(content_type)) != 1:
        raise Fault(
            400, "form_expected", "The form's content-type needs one boundary of at most 70 characters."
        )
    return boundary.encode("latin-1")


def parts(body: bytes, content_type: bytes) -> list[Part]:
    """Raises Fault 400 for what is no form."""
    mark = b"--" + _boundary(content_type)
    found: list[Part] = []
    at = 0 if body.startswith(mark) else body.find(b"\r\n" + mark) + 2
    if not body.startswith(mark, at):
        raise Fault(400, "form_expected", "The body does not begin with the form's boundary.")
    while True:
        at += len(mark)
        if body[at : at + 2] == b"--":
            return found
        if body[at : at + 2] != b"\r\n":
            raise Fault(400, "form_expected", "The form's boundary is not alone on its line.")
        head = body.find(b"\r\n\r\n", at)
        end = body.find(b"\r\n" + mark, max(head, at))
        if head < 0 or end < 0 or len(found) > 1000:
            raise Fault(400, "form_expected", "The form is not complete: its last boundary is missing.")
        if head - at > MAX_PART_HEAD:
            raise Fault(400, "form_expected", "A part of the form has headers that are too long.")
        found.append(Part(_name(body[at:head]), min(head + 4, end), end))
        at = end + 2


def _name(head: bytes) -> str:
    """Raises Fault 400 where readers of forms differ in what the name is."""
    found: list[str] = []
    for line in head.split(b"\r\n"):
        title, _, value = line.partition(b":")
        if title.strip().lower() == b"content-disposition":
            message = Message()
            message["content-disposition"] = value.decode("latin-1").strip()
            given = message.get_params(header="content-disposition") or []
            found += [value for name, value in given if name.lower() in {"name", "name*"}]
    if len(found) > 1 or b"\r\n " in head or b"\r\n\t" in head or not all(type(x) is str for x in found):
        raise Fault(400, "form_expected", "A part of the form does not say its name once and plainly.")
    return found[0] if found else ""


def model_of_form(body: bytes, content_type: bytes) -> str:
    found = [part for part in parts(body, content_type) if part.name == "model"]
    if len(found) > 1:
        raise Fault(400, "form_expected", "The form has more than one `model`. Send it once.")
    model = body[found[0].start : found[0].end].decode("utf-8", "replace").strip() if found else ""
    if not model:
        raise Fault(
            400, "model_missing", "The form has no `model`. Write the name of one; GET /v1/models lists them."
        )
    return model


def with_model(body: bytes, content_type: bytes, model: str) -> bytes:
    for part in reversed(parts(body, content_type)):
        if part.name == "model":
            body = body[: part.start] + model.encode() + body[part.end :]
    return body


def is_streamed(body: bytes, content_type: bytes) -> bool:
    """Whether the form asks for its answer as a stream."""
    return any(
        part.name == "stream" and body[part.start : part.end].strip().lower() in {b"true", b"1"}
        for part in parts(body, content_type)
    )
