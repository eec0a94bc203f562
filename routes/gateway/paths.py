"""Which paths the gateway serves, and what an engine calls them. Pure.

A caller's path is looked up as it stands; one that is written otherwise (percent signs, doubled slashes,
a slash at the end) is brought into form first. Methods other than a row's own are answered with 405.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import unquote

PREFIXES = ("/v1/", "/api/v1/", "/v1/v1/", "//v1/", "/")


@dataclass(slots=True, frozen=True, eq=False)
class Path:
    """``kind`` says how body and answer are read. ``engine`` is the engine's path; ``since`` the first vLLM
    version that has it. ``tokens`` are the fields that bound the answer's length."""

    name: str
    kind: str
    engine: str = ""
    method: str = "POST"
    since: tuple[int, int, int] = (0, 0, 0)
    tokens: tuple[str, ...] = ()
    #: the engine counts tokens of an answer on this path
    counted: bool = True

    anthropic: bool = field(init=False)
    wire_method: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "anthropic", self.kind in {"messages", "count_tokens"})
        object.__setattr__(self, "wire_method", self.method.encode())


TABLE = (
    Path("chat/completions", "chat", "/v1/chat/completions", tokens=("max_completion_tokens", "max_tokens")),
    Path("completions", "completions", "/v1/completions", tokens=("max_tokens",)),
    Path("embeddings", "embeddings", "/v1/embeddings"),
    Path("responses", "responses", "/v1/responses", since=(0, 10, 0), tokens=("max_output_tokens",)),
    Path("messages", "messages", "/v1/messages", since=(0, 11, 1), tokens=("max_tokens",)),
    Path(
        "messages/count_tokens",
        "count_tokens",
        "/v1/messages/count_tokens",
        since=(0, 17, 0),
        counted=False,
    ),
    Path("rerank", "rerank", "/v1/rerank", since=(0, 7, 3)),
    Path("score", "score", "/v1/score", since=(0, 6, 6)),
    Path("tokenize", "tokenize", "/tokenize", counted=False),
    Path("detokenize", "tokenize", "/detokenize", counted=False),
    Path("audio/transcriptions", "audio", "/v1/audio/transcriptions", since=(0, 7, 3)),
    Path("audio/translations", "audio", "/v1/audio/translations", since=(0, 9, 2)),
    Path("models", "models", method="GET", counted=False),
)
MODEL = Path("models/{model}", "model", method="GET", counted=False)
RESPONSE = Path("responses/{id}", "response", "/v1/responses/", "GET", (0, 10, 0), counted=False)
CANCEL = Path("responses/{id}/cancel", "response", "/v1/responses/", "POST", (0, 10, 0), counted=False)
OWN = {
    "/healthz": Path("healthz", "health", method="GET", counted=False),
    "/readyz": Path("readyz", "ready", method="GET", counted=False),
    "/metrics": Path("metrics", "metrics", method="GET", counted=False),
}
#: the second version of a path, which engines serve under another name
SECOND = {"/v2/rerank": "rerank"}

_BY_NAME = {path.name: path for path in TABLE}
EXACT: dict[bytes, Path] = {
    **{(prefix + path.name).encode(): path for path in TABLE for prefix in PREFIXES},
    **{name.encode(): path for name, path in OWN.items()},
}


@dataclass(slots=True, frozen=True)
class Found:
    """``rest`` is the model's name or the response's id, where the path has one."""

    path: Path
    rest: str = ""


_EXACT_FOUND = {raw: Found(path) for raw, path in EXACT.items()}


def find_path(raw: bytes) -> Found | None:
    """The row for a request's target, query included; None for a path that is not served."""
    found = _EXACT_FOUND.get(raw)
    if found is not None:
        return found
    return _look(raw.partition(b"?")[0])


def _look(raw: bytes) -> Found | None:
    found = _EXACT_FOUND.get(raw)
    if found is not None:
        return found
    text = raw.decode("latin-1")
    if not text.startswith("/"):
        # the absolute form, as a caller behind a forward proxy sends it
        scheme, _, rest = text.partition("://")
        if scheme.lower() not in {"http", "https"}:
            return None
        text = "/" + rest.partition("/")[2]
    return _by_parts([part for part in text.split("/") if part])


def _by_parts(raw: list[str]) -> Found | None:
    """``raw`` are the parts between slashes, percent signs not read yet: a name may hold a slash."""
    parts = [unquote(part, errors="replace") for part in raw]
    if parts[:1] == ["api"] and parts[1:2] == ["v1"]:
        parts = parts[1:]
    for _ in range(2):
        if parts[:1] == ["v1"]:
            parts = parts[1:]
    if not parts:
        return None
    joined = "/".join(parts)
    if joined in _BY_NAME:
        return Found(_BY_NAME[joined])
    if "/" + joined in OWN:
        return Found(OWN["/" + joined])
    if "/" + joined in SECOND:
        return Found(_BY_NAME[SECOND["/" + joined]])
    if parts[0] == "models":
        return Found(MODEL, "/".join(parts[1:]))
    if parts[0] == "responses" and len(parts) == 2:
        return Found(RESPONSE, parts[1])
    if parts[0] == "responses" and len(parts) == 3 and parts[2] == "cancel":
        return Found(CANCEL, parts[1])
    return None


def version_of(text: str) -> tuple[int, ...] | None:
    """(0, 9, 1) of ``0.9.1.post1``; None for what is no version."""
    numbers = []
    for part in text.split(".")[:3]:
        digits = ""
        for character in part:
            if not character.isdigit():
                break
            digits += character
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers) if len(numbers) >= 2 else None


@lru_cache(maxsize=4096)
def serves(path: Path, version: str) -> bool:
    """Whether a target of this vLLM version has the path; one whose version is unknown is asked."""
    known = version_of(version)
    return known is None or known >= path.since
