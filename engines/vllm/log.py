"""What a starting vLLM tells in its log. Pure; patterns are data (log_patterns.json).

``read`` is fed the log piece by piece and keeps what it learned in a JSON-serialisable dict:

version, model, architecture, max_model_len, weights_gib, kv_gib, kv_tokens, max_concurrency, compile_s,
graphs_s, graphs_gib, init_s: figures, each absent until the log tells. phase, done, total: how far the
start is; reached: the same as a share, 0 to 1. listening: the server accepts requests. problems:
[{"id", "line", "loud"}], in order. exception: what the last traceback ended with, unless it only points
elsewhere. warnings: [{"id", "line"}].
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_PREFIX = re.compile(
    r"^(?:\([^)]*? pid=\d+\) )?"
    r"(?:(?P<level>[A-Z]+) \d\d-\d\d \d\d:\d\d:\d\d \[?[^\]]*?:\d+\] ?)?(?P<text>.*)$"
)
_EXCEPTION = re.compile(
    r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)?): (?P<text>.+)$"
)
_SHARDS = re.compile(r"Loading .*?checkpoint shards:\s+\d+% Completed \| (?P<done>\d+)/(?P<total>\d+)")
_GRAPHS = re.compile(r"Capturing CUDA graphs?.*?:\s+\d+%\|.*?\| (?P<done>\d+)/(?P<total>\d+)")
_FILES = re.compile(r"Fetching (?P<total>\d+) files:\s+\d+%\|.*?\| (?P<done>\d+)/\d+")
_BANNER = re.compile(r"^\W*version (?P<version>\d\S*)\s*$")

#: share of a start that is behind when a phase begins; the rest of it is spread over its parts
PHASES = {
    "begin": (0.0, 0.03),
    "configure": (0.05, 0.10),
    "download": (0.06, 0.30),
    "engine": (0.15, 0.20),
    "weights": (0.25, 0.60),
    "compile": (0.62, 0.75),
    "cache": (0.76, 0.80),
    "graphs": (0.80, 0.94),
    "server": (0.96, 0.99),
    "ready": (1.0, 1.0),
}
_ORDER = list(PHASES)

#: lines which only say that something failed; the cause is elsewhere
SUMMARIES = frozenset(
    {
        "engine_init_failed",
        "engine_start_failed",
        "engine_fatal",
        "engine_dead",
        "worker_died",
        "core_died",
        "workerproc_failed",
        "frontend_failed",
        "engine_v0_failed",
        "engine_v0_dead",
    }
)
#: seen in healthy starts too; believed only where nothing else explains the failure
_WEAK = frozenset({"torch_version_conflict"})
_MOST = 20


@dataclass(frozen=True)
class Pattern:
    id: str
    category: str
    severity: str
    regex: re.Pattern[str]
    cause: str
    fix: str


@dataclass(frozen=True)
class Cause:
    """Why a start failed. ``id`` is a pattern's, ``exception`` or ``unknown``; ``line`` is the log's own."""

    id: str
    line: str
    found: dict[str, str]


@cache
def patterns() -> tuple[Pattern, ...]:
    data = json.loads((Path(__file__).parent / "log_patterns.json").read_text())
    return tuple(
        Pattern(
            id=one["id"],
            category=one["category"],
            severity=one["severity"],
            regex=re.compile(one["regex"]),
            cause=one.get("cause", ""),
            fix=one.get("fix", ""),
        )
        for one in data["patterns"]
    )


@cache
def pattern(pattern_id: str) -> Pattern | None:
    return next((one for one in patterns() if one.id == pattern_id), None)


def whole_lines(data: bytes, *, last: bool = False, limit: int = 65536) -> int:
    """How many bytes of ``data`` are whole lines; all of it when ``last`` or when no line ends in it."""
    end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    return len(data) if last or (end == 0 and len(data) >= limit) else end


def read(facts: dict[str, Any], text: str) -> dict[str, Any]:
    """Learn from whole lines; changes and returns ``facts``."""
    for raw in re.split(r"[\r\n]+", text):
        if raw.strip():
            _read_line(facts, raw.rstrip())
    return facts


def progress(facts: dict[str, Any]) -> float:
    """How far the start is, 0 to 1; never less than before."""
    return facts.get("reached", 0.0)


def _share(facts: dict[str, Any]) -> float:
    low, high = PHASES.get(facts.get("phase", "begin"), (0.0, 0.0))
    done, total = facts.get("done"), facts.get("total")
    return low + (high - low) * (done / total if done is not None and total else 0.0)


def cause(facts: dict[str, Any]) -> Cause:
    """The first thing in the log that explains a failure."""
    problems = facts.get("problems", [])
    real = [one for one in problems if one["id"] not in SUMMARIES | _WEAK]
    weak = [one for one in problems if one["id"] in _WEAK and not facts.get("exception")]
    for group in ([one for one in real if one["loud"]], real, weak):
        if group:
            first = group[0]
            known = pattern(first["id"])
            match = known.regex.search(first["line"]) if known else None
            found = {key: value for key, value in (match.groupdict() if match else {}).items() if value}
            return Cause(first["id"], first["line"], found)
    if facts.get("exception"):
        return Cause("exception", facts["exception"], {})
    if problems:
        return Cause(problems[0]["id"], problems[0]["line"], {})
    return Cause("unknown", facts.get("first_error", ""), {})


def _phase(facts: dict[str, Any], name: str, done: int | None = None, total: int | None = None) -> None:
    if _ORDER.index(name) < _ORDER.index(facts.get("phase", "begin")):
        return
    if name != facts.get("phase"):
        # a start that goes on was not stopped by what was printed before
        facts.pop("exception", None)
        if "problems" in facts:
            facts["problems"] = [one for one in facts["problems"] if one["id"] not in _WEAK]
    facts["phase"] = name
    facts["done"], facts["total"] = done, total
    # some phases come in rounds: CUDA graphs are captured once for each kind
    facts["reached"] = max(facts.get("reached", 0.0), _share(facts))


def _read_line(facts: dict[str, Any], raw: str) -> None:
    match = _PREFIX.match(raw)
    level, line = (match["level"] or "", match["text"]) if match else ("", raw)
    facts.setdefault("phase", "begin")
    if shards := _SHARDS.search(line):
        _phase(facts, "weights", int(shards["done"]), int(shards["total"]))
        return
    if graphs := _GRAPHS.search(line):
        _phase(facts, "graphs", int(graphs["done"]), int(graphs["total"]))
        return
    if files := _FILES.search(line):
        _phase(facts, "download", int(files["done"]), int(files["total"]))
        return
    if banner := _BANNER.match(line):
        facts.setdefault("version", banner["version"])
    _exception(facts, level, line)
    loud = level in {"ERROR", "CRITICAL"} or bool(_EXCEPTION.match(line)) or " error: " in line
    if level == "ERROR" and line.strip():
        facts.setdefault("first_error", line[:500])
    for one in patterns():
        found = one.regex.search(line)
        if found:
            _learn(facts, one, found.groupdict(), line, loud)


def _exception(facts: dict[str, Any], level: str, line: str) -> None:
    """Follow a traceback to its last line, the exception itself."""
    if line.startswith("Traceback (most recent call last)"):
        facts["in_traceback"] = True
    elif facts.get("in_traceback") and line and not line.startswith((" ", "\t")):
        facts["in_traceback"] = False
        if _EXCEPTION.match(line) and "See root cause above" not in line:
            facts["exception"] = line[:500]


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _learn(facts: dict[str, Any], one: Pattern, found: dict[str, str | None], line: str, loud: bool) -> None:
    got = {key: value for key, value in found.items() if value is not None}
    if one.severity in {"fatal", "error"}:
        problems = facts.setdefault("problems", [])
        if len(problems) < _MOST:
            problems.append({"id": one.id, "line": line[:500], "loud": loud})
        return
    if one.severity == "warning":
        warnings = facts.setdefault("warnings", [])
        if len(warnings) < _MOST and all(line[:500] != old["line"] for old in warnings):
            warnings.append({"id": one.id, "line": line[:500]})
    match one.id:
        case "server_version" | "engine_init_v1" | "engine_init_v0":
            facts.setdefault("version", got["version"])
            _phase(facts, "engine" if one.id != "server_version" else "configure")
        case "non_default_args":
            _phase(facts, "configure")
        case "resolved_arch":
            facts["architecture"] = got["arch"]
            _phase(facts, "configure")
        case "max_model_len_used":
            facts["max_model_len"] = int(got["len"])
        case "load_start":
            _phase(facts, "weights")
        case "model_loaded":
            facts["weights_gib"] = round(_number(got["gib"]), 2)
            _phase(facts, "compile")
        case "weights_loaded":
            _phase(facts, "compile")
        case "torch_compile":
            facts["compile_s"] = _number(got["s"])
            _phase(facts, "cache")
        case "kv_available":
            facts["kv_gib"] = _number(got["gib"])
            _phase(facts, "cache")
        case "kv_size_tokens":
            facts["kv_tokens"] = int(_number(got["tokens"]))
            _phase(facts, "cache")
        case "auto_fit_reduced":
            facts["max_model_len"] = int(got["to"])
        case "graph_capture_done":
            facts["graphs_s"] = _number(got["s"])
            if "gib" in got:
                facts["graphs_gib"] = _number(got["gib"])
            _phase(facts, "graphs", 1, 1)
        case "init_done":
            facts["init_s"] = _number(got["s"])
            _phase(facts, "graphs", 1, 1)
        case "server_start":
            _phase(facts, "server")
        case "app_startup_complete" | "uvicorn_running":
            facts["listening"] = True
            _phase(facts, "ready")
    if "x" in got and one.id == "max_concurrency":
        facts["max_concurrency"] = _number(got["x"])
