"""Rows of keys, routes and targets, and what they become in memory. Pure.

The statements and the functions below them go together: a function takes a row of its statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any
from urllib.parse import urlsplit

from kvadmin.forwarded import unmapped
from routes.gateway.records import KeyRecord, RouteRecord, Snapshot, TargetRecord, TargetState
from routes.serving import served_name, target_state

#: keys are compared with the database in groups of so many ids
GROUP = 1000

_KEY = """
    key.id, key.public_id, key.digest, business.team_id, key.business_id, key.name,
    key.disabled_at IS NOT NULL, key.revoked_at IS NOT NULL,
    date_part('epoch', key.expires_at), date_part('epoch', key.overlap_ends_at),
    key.models, key.addresses,
    key.requests_per_minute, key.tokens_per_minute, key.concurrent, key.monthly_tokens
"""
_FROM = "FROM routes_key AS key JOIN routes_business AS business ON business.id = key.business_id"

KEYS_AFTER = f"SELECT {_KEY} {_FROM} WHERE key.id > %s ORDER BY key.id LIMIT %s"
KEYS_BY_ID = f"SELECT {_KEY} {_FROM} WHERE key.id = ANY(%s)"
KEYS_BETWEEN = f"SELECT {_KEY} {_FROM} WHERE key.id >= %s AND key.id < %s"
#: (group, a number that changes with anything that is kept of its keys)
KEY_GROUPS = (
    f"SELECT key.id / {GROUP}, bit_xor(hashtextextended(ROW({_KEY})::text, 0)), count(*) {_FROM} GROUP BY 1"
)

ROUTES = """
SELECT route.id, route.name, route.aliases, route.enabled, route.policy, route.max_tokens,
    route.max_tokens_rule, route.connect_s, route.first_byte_s, route.idle_s, route.total_s,
    coalesce(fallback.name, ''), route.continuous_usage, route.description,
    date_part('epoch', route.created_at), route.context_length
FROM routes_route AS route LEFT JOIN routes_route AS fallback ON fallback.id = route.fallback_id
ORDER BY route.id
"""
TARGETS = """
SELECT target.id, target.route_id, target.engine_id, target.base_url, target.api_key, target.model,
    target.weight, engine.name, engine.observed, engine.served_names, engine.max_model_len,
    engine.vllm_version, engine.api_key, engine.port, host.service_address, host.kind, host.address
FROM routes_target AS target
LEFT JOIN engines_engine AS engine ON engine.id = target.engine_id
LEFT JOIN engines_host AS host ON host.id = engine.host_id
WHERE target.enabled ORDER BY target.id
"""

_models = lru_cache(maxsize=4096)(frozenset)


@lru_cache(maxsize=4096)
def _networks(texts: tuple[str, ...]) -> tuple[IPv4Network | IPv6Network, ...]:
    found = []
    for text in texts:
        try:
            found.append(unmapped(ip_network(text.strip(), strict=False)))
        except ValueError:
            # an entry that is no network allows nobody
            continue
    # with no entry left the key must not become open to all
    return tuple(found) or ((ip_network("255.255.255.255/32"),) if texts else ())


def key_record(row: tuple[Any, ...]) -> KeyRecord:
    (
        id,
        public_id,
        digest,
        team_id,
        business_id,
        name,
        disabled,
        revoked,
        expires,
        overlap,
        models,
        addresses,
        requests,
        tokens,
        concurrent,
        monthly,
    ) = row
    ends = expires if overlap is None else overlap if expires is None else min(expires, overlap)
    return KeyRecord(
        id,
        public_id or "",
        bytes(digest),
        team_id,
        business_id,
        name,
        "revoked" if revoked else "disabled" if disabled else "active",
        ends,
        overlap is not None and ends == overlap,
        None if models is None else _models(tuple(models)),
        _networks(tuple(addresses)) if addresses else (),
        requests,
        tokens,
        concurrent,
        monthly,
    )


def put_key(snapshot: Snapshot, record: KeyRecord) -> None:
    """Keep a key in place of what was known of it. An equal record leaves the old one where it is."""
    old = snapshot.by_id.get(record.id)
    if old == record:
        return
    if old is not None:
        drop_key(snapshot, record.id)
    snapshot.by_id[record.id] = record
    if record.public_id:
        snapshot.keys[record.public_id] = record
    else:
        snapshot.imported[record.digest] = record


def drop_key(snapshot: Snapshot, id: int) -> None:
    old = snapshot.by_id.pop(id, None)
    if old is None:
        return
    if old.public_id:
        snapshot.keys.pop(old.public_id, None)
    else:
        snapshot.imported.pop(old.digest, None)


def engine_url(service_address: str, kind: str, address: str, port: int) -> str:
    """Where an engine is reached; as Engine.base_url has it."""
    host = service_address or ("127.0.0.1" if kind == "local" else address)
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"http://{host}:{port}"


def plain_url(url: str) -> str:
    """Without a slash and without /v1 at its end."""
    return url.strip().rstrip("/").removesuffix("/v1").rstrip("/")


def target_record(
    row: tuple[Any, ...], route_name: str, context_length: int | None, unseal: Callable[[str], str | None]
) -> TargetRecord:
    """``unseal`` gives None for a secret that no data key opens: such a target takes no requests."""
    (
        id,
        route_id,
        engine_id,
        base_url,
        sealed,
        model,
        weight,
        engine_name,
        observed,
        served_names,
        max_model_len,
        vllm_version,
        engine_sealed,
        port,
        service_address,
        kind,
        address,
    ) = row
    state: TargetState = "ready"
    if engine_id is not None:
        base_url = engine_url(service_address, kind, address, port)
        state = target_state(observed)
        sealed = engine_sealed
    base_url = plain_url(base_url)
    api_key = unseal(sealed) if sealed else ""
    return TargetRecord(
        id,
        route_id,
        base_url,
        served_name(model, served_names or (), route_name),
        engine_id,
        engine_name or urlsplit(base_url).netloc,
        api_key or "",
        weight,
        "down" if api_key is None else state,
        max_model_len or context_length,
        vllm_version or "",
    )


def routes_by_name(
    routes: Iterable[tuple[Any, ...]],
    targets: Iterable[tuple[Any, ...]],
    unseal: Callable[[str], str | None],
) -> dict[str, RouteRecord]:
    """By name and alias; a name goes before an alias that is the same."""
    routes = list(routes)
    by_route: dict[int, list[TargetRecord]] = {}
    names = {row[0]: (row[1], row[15]) for row in routes}
    for row in targets:
        if row[1] in names:
            by_route.setdefault(row[1], []).append(target_record(row, *names[row[1]], unseal))
    records = [
        RouteRecord(
            id=row[0],
            name=row[1],
            aliases=tuple(row[2]),
            targets=tuple(by_route.get(row[0], ())),
            enabled=row[3],
            policy=row[4],
            max_tokens=row[5],
            max_tokens_rule=row[6],
            connect_s=row[7],
            first_byte_s=row[8],
            idle_s=row[9],
            total_s=row[10],
            fallback=row[11],
            continuous_usage=row[12],
            description=row[13],
            created_at=row[14],
            context_length=row[15],
        )
        for row in routes
    ]
    found = {alias: record for record in records for alias in record.aliases}
    return {**found, **{record.name: record for record in records}}
