"""One /metrics page into canonical values. Pure, and quick: it runs for every poll of every engine.

An engine's pages have the same series in the same places from poll to poll, so a PageReader learns where
the wanted ones are and afterwards reads only their numbers; a page that differs is learned anew. The
reference for what a line means is prometheus_client's parser, in the tests. A metric that is not on the
page is absent from the result, never 0. A NaN, an infinity and what is too large to be counted in are no
values: that series is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from engines.metrics.names import CACHE_CONFIG, METRICS, Combine, Kind, page_names

#: beyond this a float counts no more by ones; and one engine that says more would overflow the columns in
#: which the figures of all are written and summed up
MOST = 2.0**53


class MalformedPage(ValueError):
    """The text is no page of metrics; the message says where it stops being one."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative counts at each upper bound (the last is infinity), as the page has them.

    ``bounds`` ascend; ``counts`` has the same length; ``sum`` is the sum of what was observed, None when
    the page does not have it.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    sum: float | None


@dataclass(frozen=True, slots=True)
class Page:
    """What a page said. ``ranks`` and ``models`` are those seen on the running requests' series.

    ``cache_config`` has the labels of the first rank's cache configuration, values as the text they are.
    ``pool_tokens`` is the size of the KV pool over all ranks in tokens, None when the version hides it.
    """

    values: dict[str, float] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)
    cache_config: dict[str, str] = field(default_factory=dict)
    pool_tokens: int | None = None
    ranks: int = 0
    models: tuple[str, ...] = ()


_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_START = re.compile(r"(?:#|[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{|[ \t]+[-+0-9NI]))")

_SCALAR, _BUCKET, _SUM, _INFO = range(4)


@dataclass(frozen=True, slots=True)
class _Use:
    """What a line of one name is for; ``place`` orders the names of one metric, newest first."""

    what: int
    metric: str
    place: int


def _wanted() -> dict[str, tuple[_Use, ...]]:
    table: dict[str, list[_Use]] = {}
    for metric in METRICS.values():
        for place, name in enumerate(page_names(metric.name)):
            if metric.kind is Kind.HISTOGRAM:
                table.setdefault(f"{name}_bucket", []).append(_Use(_BUCKET, metric.name, place))
                table.setdefault(f"{name}_sum", []).append(_Use(_SUM, metric.name, place))
            else:
                table.setdefault(name, []).append(_Use(_SCALAR, metric.name, place))
    for place, name in enumerate(page_names(CACHE_CONFIG)):
        table.setdefault(name, []).append(_Use(_INFO, CACHE_CONFIG, place))
    return {name: tuple(uses) for name, uses in table.items()}


_WANTED = _wanted()


def labels_of(text: str) -> dict[str, str]:
    """The labels between a series' braces, unescaped."""
    return {
        name: _ESCAPED.sub(_unescaped, value) if "\\" in value else value
        for name, value in _LABEL.findall(text)
    }


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def _number(line: str, text: str) -> float:
    """The value after a series, with or without a timestamp behind it."""
    parts = text.split()
    try:
        if len(parts) == 2:
            int(parts[1])
        if len(parts) in (1, 2) and "_" not in parts[0]:
            return float(parts[0])
    except ValueError:
        pass
    raise MalformedPage(f"no number in the line: {line[:120]}")


#: (line number, the line up to its value, that length)
_Place = tuple[int, str, int]


@dataclass(slots=True)
class _Layout:
    """Where the wanted series of a page are.

    ``scalars`` and ``buckets`` list them; the positions elsewhere point into those lists.
    ``values``: metric -> positions. ``histograms``: metric -> (bounds, positions for each bound,
    positions of the sums).
    """

    lines: int
    scalars: list[_Place] = field(default_factory=list)
    buckets: list[_Place] = field(default_factory=list)
    values: dict[str, list[int]] = field(default_factory=dict)
    histograms: dict[str, tuple[tuple[float, ...], list[list[int]], list[int]]] = field(default_factory=dict)
    cache_config: dict[str, str] = field(default_factory=dict)
    pool_tokens: int | None = None
    ranks: int = 0
    models: tuple[str, ...] = ()


class _Moved(Exception):
    """The page has other series than the layout."""


class PageReader:
    """Reads the pages of one engine; keeps where its series are from one page to the next."""

    __slots__ = ("_layout",)

    def __init__(self) -> None:
        self._layout: _Layout | None = None

    def read(self, text: str, *, histograms: bool = True) -> Page:
        """Read a page in Prometheus's text format (0.0.4).

        ``histograms=False`` leaves them unread, which takes a third of the time. Raises MalformedPage for
        a page of something else, one cut off in its last line, or a wanted line without a number.
        """
        lines = _lines(text)
        if self._layout is not None:
            try:
                return _read(self._layout, lines, histograms)
            except _Moved:
                pass
        self._layout = _learn(lines)
        return _read(self._layout, lines, histograms)


def parse_page(text: str, *, histograms: bool = True) -> Page:
    """Read one page for which there is no reader; see PageReader.read."""
    return PageReader().read(text, histograms=histograms)


def _lines(text: str) -> list[str]:
    if not text:
        raise MalformedPage("the page is empty")
    if not _START.match(text[:1000].lstrip()):
        raise MalformedPage(f"not a page of metrics; it starts with: {text[:1000].lstrip()[:60]}")
    if not text.endswith("\n"):
        raise MalformedPage("the page is cut off in its last line")
    return text.split("\n")


def _numbers(places: list[_Place], lines: list[str]) -> list[float]:
    numbers = []
    append = numbers.append
    for number, prefix, length in places:
        line = lines[number]
        if not line.startswith(prefix):
            raise _Moved
        try:
            append(float(line[length:]))
        except ValueError:
            append(_number(line, line[length:]))
    return numbers


def _read(layout: _Layout, lines: list[str], histograms: bool) -> Page:
    if len(lines) != layout.lines:
        raise _Moved
    numbers = _numbers(layout.scalars, lines)
    values: dict[str, float] = {}
    for metric, positions in layout.values.items():
        lowest = METRICS[metric].lowest
        found = [
            number
            for number in (numbers[position] for position in positions)
            if -MOST <= number <= MOST and (lowest is None or number >= lowest)
        ]
        if not found:
            continue
        combine = METRICS[metric].combine
        if combine is Combine.MEAN:
            values[metric] = sum(found) / len(found)
        else:
            values[metric] = sum(found) if combine is Combine.SUM else max(found)

    read: dict[str, Histogram] = {}
    if histograms:
        numbers = _numbers(layout.buckets, lines)
        for metric, (bounds, by_bound, sums) in layout.histograms.items():
            counts = tuple(
                numbers[positions[0]] if len(positions) == 1 else sum(numbers[p] for p in positions)
                for positions in by_bound
            )
            if all(0 <= count <= MOST for count in counts):
                total = sum(numbers[position] for position in sums) if sums else None
                if total is not None and not -MOST <= total <= MOST:
                    total = None
                read[metric] = Histogram(bounds, counts, total)
    return Page(
        values=values,
        histograms=read,
        cache_config=layout.cache_config,
        pool_tokens=layout.pool_tokens,
        ranks=layout.ranks,
        models=layout.models,
    )


def _learn(lines: list[str]) -> _Layout:
    layout = _Layout(lines=len(lines))
    scalars: dict[tuple[str, int], list[int]] = {}
    buckets: dict[tuple[str, int], dict[float, list[int]]] = {}
    sums: dict[tuple[str, int], list[int]] = {}
    info: list[dict[str, str]] = []
    running: list[dict[str, str]] = []

    for number, line in enumerate(lines):
        if not line or line[0] == "#":
            continue
        brace = line.find("{")
        name = line.split(None, 1)[0] if brace < 0 else line[:brace].rstrip()
        uses = _WANTED.get(name)
        if uses is None:
            continue
        # a label's value may hold a brace, a value and a timestamp cannot
        end = line.rfind("}") + 1 if brace >= 0 else len(name)
        if end <= brace or line[end : end + 1] not in (" ", "\t"):
            raise MalformedPage(f"no number in the line: {line[:120]}")
        _number(line, line[end:])
        labels = labels_of(line[brace:end]) if brace >= 0 else {}
        place = (number, line[: end + 1], end + 1)
        at: int | None = None
        for use in uses:
            key = (use.metric, use.place)
            if use.what == _INFO:
                info.append(labels)
            elif use.what == _SCALAR:
                needed = METRICS[use.metric].label
                if needed and labels.get(needed[0]) != needed[1]:
                    continue
                if at is None:
                    at = len(layout.scalars)
                    layout.scalars.append(place)
                scalars.setdefault(key, []).append(at)
                if use.metric == "requests_running":
                    running.append(labels)
            else:
                if use.what == _BUCKET:
                    buckets.setdefault(key, {}).setdefault(_bound(line, labels), []).append(
                        len(layout.buckets)
                    )
                else:
                    sums.setdefault(key, []).append(len(layout.buckets))
                layout.buckets.append(place)

    for (metric, _), positions in sorted(scalars.items()):
        layout.values.setdefault(metric, positions)
    for key in sorted(buckets):
        if key[0] not in layout.histograms:
            bounds = sorted(buckets[key])
            if bounds[-1] != float("inf"):
                raise MalformedPage(f"the histogram {key[0]} has no +Inf bucket")
            layout.histograms[key[0]] = (
                tuple(bounds),
                [buckets[key][bound] for bound in bounds],
                sums.get(key, []),
            )
    layout.cache_config = info[0] if info else {}
    layout.pool_tokens = _pool_tokens(info)
    layout.ranks = len({labels.get("engine", "0") for labels in running})
    layout.models = tuple(sorted({labels["model_name"] for labels in running if labels.get("model_name")}))
    return layout


def _bound(line: str, labels: dict[str, str]) -> float:
    try:
        return float(labels["le"])
    except (KeyError, ValueError):
        raise MalformedPage(f"a bucket without its bound: {line[:120]}") from None


def _pool_tokens(ranks: list[dict[str, str]]) -> int | None:
    """The pool's size over all ranks in tokens.

    ``kv_cache_size_tokens`` is one rank's; ``num_gpu_blocks`` is the sum over ranks, repeated for each.
    """
    by_rank = {
        rank.get("engine", "0"): int(rank["kv_cache_size_tokens"])
        for rank in ranks
        if _is_count(rank, "kv_cache_size_tokens")
    }
    if by_rank:
        return sum(by_rank.values())
    if ranks and _is_count(ranks[0], "num_gpu_blocks") and _is_count(ranks[0], "block_size"):
        return int(ranks[0]["num_gpu_blocks"]) * int(ranks[0]["block_size"])
    return None


def _is_count(labels: dict[str, str], name: str) -> bool:
    text = labels.get(name, "")
    return text.isascii() and text.isdigit()
