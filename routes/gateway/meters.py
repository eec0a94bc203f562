"""The gateway's metrics for Prometheus. A gateway is all its workers: whichever answers sums them all.

Each worker counts in a file of its own, mapped into memory, with the series' names in another; so a count
costs a memory access, and a worker that died is still in the sums, which therefore never fall. Labels are
bounded: routes the gateway knows (the first MAX_ROUTES of them), statuses and layers; never a key or what a
caller wrote.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from routes.gateway.records import UsageRecord
from routes.gateway.slots import Slot

#: counter and sum add up over all workers that ever were, and those that live; max and min choose
Kind = Literal["counter", "sum", "max", "min"]

PREFIX = "kvadmin_gateway_"
MAX_ROUTES = 200
OTHER = "other"
#: upper bounds in seconds
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
SAMPLE_S = 1.0
#: requests that are counted in one go, which is cheaper than each when it ends
TOGETHER = 256
#: doubles in a worker's file; the first takes what found no place
_PLACES = 32_768
_LAYERS = frozenset({"", "gateway", "engine", "caller"})

#: metric -> (type, help)
HELP = {
    "requests_total": ("counter", "Requests answered, by route, status and the layer of the error."),
    "request_seconds": (
        "histogram",
        "From a request's first byte to the last of its answer, errors left out.",
    ),
    "first_byte_seconds": ("histogram", "From a request's first byte to the first of its answer."),
    "tokens_total": ("counter", "Tokens by route and kind: prompt, cached (of the prompt), completion."),
    "refused_total": ("counter", "Requests refused by a key's limit: requests, tokens, concurrent, monthly."),
    "limit_waits_total": ("counter", "Requests that waited for a share of their key's limits."),
    "limits_shared": ("gauge", "1 if limits are shared through Valkey by all workers, 0 if not."),
    "responses_shared": ("gauge", "1 if responses by id are found through Valkey by all workers, 0 if not."),
    "targets_ejected": ("gauge", "Targets that take no requests, or one as a probe, because they failed."),
    "requests_in_flight": ("gauge", "Requests that are being answered."),
    "connections": ("gauge", "Connections of callers."),
    "snapshot_workers": ("gauge", "Workers by the state of what they know of keys and routes."),
    "snapshot_age_seconds": ("gauge", "How long ago the database last agreed with the worst-off worker."),
    "snapshot_keys": ("gauge", "Keys that are known."),
    "spool_bytes": ("gauge", "Bytes of usage rows that the database has not yet."),
    "spool_lag_seconds": ("gauge", "How old the oldest of them may be."),
    "spool_workers": ("gauge", "Workers by the state of their spool: ok, full, disk."),
    "usage_rows_total": ("counter", "Usage rows recorded, shipped to the database, rejected by it, lost."),
    "workers": ("gauge", "Workers that live."),
}

#: what a worker's state adds: (metric, labels, kind, value)
Sampled = Iterable[tuple[str, Mapping[str, str], Kind, float]]


def series(name: str, **labels: str) -> str:
    """A series' name with labels, as in Prometheus's text."""
    if not labels:
        return PREFIX + name
    inner = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
    return f"{PREFIX}{name}{{{inner}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class _Route:
    """Places of one route's series."""

    __slots__ = ("answers", "cached", "completion", "first", "prompt", "total")

    def __init__(self, meters: Meters, name: str):
        place = meters.place
        self.prompt, self.cached, self.completion = (
            place(series("tokens_total", route=name, kind=kind))
            for kind in ("prompt", "cached", "completion")
        )
        self.total = meters.histogram("request_seconds", route=name)
        self.first = meters.histogram("first_byte_seconds", route=name)
        self.answers: dict[tuple[int, str], int] = {}


class Meters:
    """One for each worker. ``sample`` tells its state, every second and when it answers itself.

    ``base`` is the folder of this gateway's metrics; its workers share it, other gateways do not. Raises
    OSError when nothing can be written there.
    """

    def __init__(self, base: Path, sample: Callable[[], Sampled] | None = None):
        self.base = base
        self.sample = sample
        self.slot = Slot.claim(base)
        self._names_path = self.slot.folder / "names"
        self._names: dict[str, int] = {}
        self._map, self._values = self._open()
        #: what sampled counters stood at when this worker began
        self._began: dict[str, float] = {}
        self._told: set[str] = set()
        self._routes: dict[str, _Route] = {}
        self._ended: list[UsageRecord] = []

    def _open(self) -> tuple[mmap.mmap, memoryview]:
        path = self.slot.folder / "values"
        with path.open("ab") as file:
            # all of it now: a full disk must not end the process at the first touch of a page
            os.posix_fallocate(file.fileno(), 0, _PLACES * 8)
        # a name that was torn off in the middle has no place
        kept = [] if not self._names_path.exists() else _lines(self._names_path.read_bytes())
        self._names_path.write_bytes(b"".join(line + b"\n" for line in kept))
        with path.open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), _PLACES * 8)
        values = memoryview(mapped).cast("d")
        for number, line in enumerate(kept, 1):
            kind, _, name = line.decode().partition(" ")
            self._names[name] = number
            if kind != "counter":
                values[number] = 0.0
        for number in range(len(kept) + 1, _PLACES):
            if values[number]:
                values[number] = 0.0
        return mapped, values

    def place(self, name: str, kind: Kind = "counter") -> int:
        """Where a series is counted; 0 when there is no room for it."""
        return self._names.get(name) or self.places([name], kind)[0]

    def places(self, names: Sequence[str], kind: Kind = "counter") -> list[int]:
        """The same for several; new ones lie together, and become known together."""
        new = [name for name in names if name not in self._names]
        if new and len(self._names) + len(new) < _PLACES:
            try:
                with self._names_path.open("ab", buffering=0) as file:
                    file.write("".join(f"{kind} {name}\n" for name in new).encode())
            except OSError:
                # a full disk: what has no name is not counted
                return [self._names.get(name, 0) for name in names]
            for number, name in enumerate(new, len(self._names) + 1):
                self._names[name] = number
        return [self._names.get(name, 0) for name in names]

    def histogram(self, name: str, **labels: str) -> int:
        """The first of a histogram's places: one for each bucket, one past the last bound, and the sum."""
        bounds = [*map(_bound, BOUNDS), "+Inf"]
        places = self.places(
            [
                *(series(f"{name}_bucket", **labels, le=bound) for bound in bounds),
                series(f"{name}_sum", **labels),
            ]
        )
        together = places[0] > 0 and places[-1] == places[0] + len(places) - 1
        return places[0] if together else 0

    def observe(self, row: UsageRecord) -> None:
        """Count one request that has ended, together with others when it suits."""
        self._ended.append(row)
        if len(self._ended) >= TOGETHER:
            self.count()

    def count(self) -> None:
        """Count those that have ended since the last time."""
        rows, self._ended = self._ended, []
        for row in rows:
            self._count(row)

    def _count(self, row: UsageRecord) -> None:
        name = row.model if row.route_id is not None else ""
        route = self._routes.get(name) or self._route(name)
        values = self._values
        answer = route.answers.get((row.status, row.error_layer))
        if answer is None:
            answer = self._answer(route, name, row)
        values[answer] += 1.0
        if row.prompt_tokens or row.completion_tokens:
            values[route.prompt] += row.prompt_tokens
            values[route.cached] += row.cached_tokens
            values[route.completion] += row.completion_tokens
        if row.error_layer:
            return
        if route.total:
            values[route.total + bisect_left(BOUNDS, row.total_s)] += 1.0
            values[route.total + len(BOUNDS) + 1] += row.total_s
        if route.first and row.first_byte_s is not None:
            values[route.first + bisect_left(BOUNDS, row.first_byte_s)] += 1.0
            values[route.first + len(BOUNDS) + 1] += row.first_byte_s

    def _route(self, name: str) -> _Route:
        if len(self._routes) >= MAX_ROUTES and name != OTHER:
            return self._routes.get(OTHER) or self._route(OTHER)
        found = self._routes[name] = _Route(self, name)
        return found

    def _answer(self, route: _Route, name: str, row: UsageRecord) -> int:
        shown = name if self._routes.get(name) is route else OTHER
        status = row.status if 100 <= row.status <= 599 else 0
        layer = row.error_layer if row.error_layer in _LAYERS else OTHER
        place = self.place(series("requests_total", route=shown, status=str(status), layer=layer))
        if len(route.answers) < 1000:
            route.answers[row.status, row.error_layer] = place
        return place

    def take_sample(self) -> None:
        """Write this worker's state where the others see it."""
        self.count()
        self._set("workers", {}, "sum", 1.0)
        told = set()
        for metric, labels, kind, value in self.sample() if self.sample is not None else ():
            self._set(metric, labels, kind, value)
            if labels and kind != "counter":
                told.add(series(metric, **labels))
        # a state that is no longer falls to 0
        for name in self._told - told:
            self._values[self._names[name]] = 0.0
        self._told = told

    def _set(self, metric: str, labels: Mapping[str, str], kind: Kind, value: float) -> None:
        name = series(metric, **labels)
        place = self.place(name, kind)
        if kind == "counter":
            value += self._began.setdefault(name, self._values[place])
        self._values[place] = value

    async def run(self) -> None:
        """Keep this worker's state up to date until cancelled."""
        while True:
            self.take_sample()
            await asyncio.sleep(SAMPLE_S)

    def page(self) -> bytes:
        """Prometheus's text of the whole gateway."""
        self.take_sample()
        return text(merged(self.base)).encode()

    def close(self) -> None:
        self.count()
        self._values.release()
        self._map.close()
        self.slot.free()


def _bound(bound: float) -> str:
    return repr(bound).removesuffix(".0")


def _lines(data: bytes) -> list[bytes]:
    return data[: data.rfind(b"\n") + 1].splitlines()


def merged(base: Path) -> dict[str, float]:
    """Every series of all workers under ``base``: counters of all that ever were, the rest of the living."""
    found: dict[str, float] = {}
    for number in Slot.numbers(base):
        folder = base / f"{number:04}"
        try:
            names = _lines((folder / "names").read_bytes())
            data = (folder / "values").read_bytes()[: (len(names) + 1) * 8]
        except FileNotFoundError:
            continue
        alive = not Slot.is_free(folder)
        values = struct.unpack(f"{len(data) // 8}d", data)
        for line, value in zip(names, values[1:], strict=False):
            kind, _, name = line.decode().partition(" ")
            if kind == "counter" or (kind == "sum" and alive):
                found[name] = found.get(name, 0.0) + value
            elif alive:
                found[name] = (max if kind == "max" else min)(found.get(name, value), value)
    return found


def text(values: Mapping[str, float]) -> str:
    """Prometheus's text; buckets are added up here."""
    by_metric: dict[str, list[tuple[str, float]]] = {}
    for name, value in values.items():
        plain = name.partition("{")[0].removeprefix(PREFIX)
        metric = plain
        for ending in ("_bucket", "_sum"):
            if metric.removesuffix(ending) in HELP:
                metric = metric.removesuffix(ending)
        by_metric.setdefault(metric, []).append((name, value))
    lines = []
    for metric, (kind, words) in HELP.items():
        if metric not in by_metric:
            continue
        lines += [f"# HELP {PREFIX}{metric} {words}", f"# TYPE {PREFIX}{metric} {kind}"]
        if kind != "histogram":
            lines += [f"{name} {_number(value)}" for name, value in sorted(by_metric[metric])]
            continue
        lines += _histogram_lines(metric, by_metric[metric])
    return "\n".join(lines) + "\n"


def _histogram_lines(metric: str, found: Iterable[tuple[str, float]]) -> list[str]:
    lines: list[str] = []
    total = 0.0
    labels = None
    # a worker makes the places of a histogram in the order of the bounds, the sum last
    for name, value in found:
        inner = name.partition("{")[2].rpartition("}")[0]
        if not name.startswith(f"{PREFIX}{metric}_bucket"):
            lines += [f"{name} {_number(value)}", f"{PREFIX}{metric}_count{{{inner}}} {_number(total)}"]
            continue
        now = inner.rpartition(",le=")[0]
        total = value if now != labels else total + value
        labels = now
        lines.append(f"{name} {_number(total)}")
    return lines


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
