"""How a worker is: what /metrics and /readyz tell of its parts."""

from __future__ import annotations

from collections.abc import Iterator

from routes.gateway.limits import Limits
from routes.gateway.meters import Kind
from routes.gateway.sharedresponses import SharedResponses
from routes.gateway.shipper import Shipper
from routes.gateway.snapshot import SnapshotFeed
from routes.gateway.spool import Ledger


def samples(
    feed: SnapshotFeed,
    limits: Limits,
    ledger: Ledger,
    shipper: Shipper,
    responses: SharedResponses,
    *,
    in_flight: int,
    connections: int,
    ejected: int,
) -> Iterator[tuple[str, dict[str, str], Kind, float]]:
    """For Meters."""
    yield "requests_in_flight", {}, "sum", in_flight
    yield "connections", {}, "sum", connections
    yield "snapshot_workers", {"state": feed.state}, "sum", 1
    if feed.loaded.is_set():
        yield "snapshot_age_seconds", {}, "max", feed.age_s
        yield "snapshot_keys", {}, "max", len(feed.snapshot.by_id)
    yield "limits_shared", {}, "min", float(limits.shared)
    yield "responses_shared", {}, "min", float(responses.shared)
    yield "targets_ejected", {}, "max", ejected
    yield "limit_waits_total", {}, "counter", limits.waited
    for limit, count in limits.refused.items():
        yield "refused_total", {"limit": limit}, "counter", count
    yield "spool_bytes", {}, "sum", ledger.bytes
    yield "spool_lag_seconds", {}, "max", shipper.lag_s
    yield "spool_workers", {"state": ledger.state}, "sum", 1
    yield "usage_rows_total", {"what": "recorded"}, "counter", ledger.recorded
    yield "usage_rows_total", {"what": "shipped"}, "counter", shipper.shipped
    yield "usage_rows_total", {"what": "rejected"}, "counter", shipper.rejected
    yield "usage_rows_total", {"what": "lost"}, "counter", ledger.lost


def checks(
    feed: SnapshotFeed, limits: Limits, ledger: Ledger, shipper: Shipper, responses: SharedResponses
) -> dict[str, str]:
    """For /readyz: a word or a sentence for each part. The snapshot alone decides if requests are taken."""
    spool = {
        "ok": "ok",
        "full": "full: the database takes no usage rows, and no more fit on the disk",
        "disk": "the disk takes no usage rows",
    }[ledger.state]
    return {
        "snapshot": feed.problem or feed.state,
        "limits": "shared" if limits.shared else "this gateway alone: Valkey does not answer",
        "responses": "shared" if responses.shared else "each worker alone: Valkey does not answer",
        "spool": spool,
        "usage": "ok" if shipper.connected or ledger.empty else "kept here: the database does not take it",
    }
