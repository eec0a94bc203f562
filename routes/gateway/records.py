"""What the gateway knows, as it stands in memory: keys, routes and their targets. Pure.

Read from PostgreSQL by ``snapshot.py``. Times are Unix seconds, durations seconds, limits None where there
is none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import Literal

KeyState = Literal["active", "disabled", "revoked"]
#: ready takes requests; draining finishes those it has; down takes none
TargetState = Literal["ready", "draining", "down"]
MaxTokensRule = Literal["pass", "clamp", "refuse"]
Policy = Literal["least_busy", "prefix_affinity"]


@dataclass(slots=True, frozen=True)
class KeyRecord:
    """One key. ``ends_at`` is the earlier of its expiry and the end of its overlap with a successor."""

    id: int
    public_id: str
    digest: bytes
    team_id: int
    business_id: int
    name: str
    state: KeyState = "active"
    ends_at: float | None = None
    #: True if ``ends_at`` is an overlap's end: the error then says that the key was rotated
    rotated: bool = False
    #: route names it may call; None for all
    models: frozenset[str] | None = None
    addresses: tuple[IPv4Network | IPv6Network, ...] = ()
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    monthly_tokens: int | None = None


@dataclass(slots=True, frozen=True)
class TargetRecord:
    """Where a route's requests go: an engine of ours or an outside URL.

    ``base_url`` has no trailing slash and no /v1. ``model`` is the name that the target itself goes by.
    """

    id: int
    route_id: int
    base_url: str
    model: str
    engine_id: int | None = None
    name: str = ""
    api_key: str = ""
    weight: int = 1
    state: TargetState = "ready"
    max_model_len: int | None = None
    vllm_version: str = ""


@dataclass(slots=True, frozen=True)
class RouteRecord:
    """A model name that callers use."""

    id: int
    name: str
    aliases: tuple[str, ...] = ()
    targets: tuple[TargetRecord, ...] = ()
    enabled: bool = True
    policy: Policy = "least_busy"
    max_tokens: int | None = None
    max_tokens_rule: MaxTokensRule = "refuse"
    connect_s: float = 5.0
    first_byte_s: float = 120.0
    idle_s: float = 60.0
    total_s: float = 3600.0
    #: the route that takes over when no target can
    fallback: str = ""
    #: ask the engine for the count so far with every event of a stream, so that an abort is billed by it
    continuous_usage: bool = False
    description: str = ""
    created_at: float = 0.0
    #: of the longest request, in tokens, where an operator has set it
    context_length: int | None = None


@dataclass(slots=True)
class Snapshot:
    """Everything a request is decided by. Replaced or changed only between requests, on the loop."""

    #: by public id
    keys: dict[str, KeyRecord] = field(default_factory=dict)
    #: imported keys, whose text has any form, by digest
    imported: dict[bytes, KeyRecord] = field(default_factory=dict)
    by_id: dict[int, KeyRecord] = field(default_factory=dict)
    #: by name and by every alias
    routes: dict[str, RouteRecord] = field(default_factory=dict)
    #: Unix seconds of the last time PostgreSQL was known to agree; 0 before the first read
    agreed_at: float = 0.0


@dataclass(slots=True)
class UsageRecord:
    """What one request consumed: exactly one for every request that named a known key.

    ``error_layer`` is "" or gateway, engine, caller; ``tokens_source`` is engine, partial or estimated (""
    when nothing was consumed). Durations are None where the request did not get that far.
    """

    request_id: str
    at: float
    key_id: int
    business_id: int
    team_id: int
    path: str
    route_id: int | None = None
    target_id: int | None = None
    engine_id: int | None = None
    model: str = ""
    status: int = 0
    error_layer: str = ""
    error_code: str = ""
    streamed: bool = False
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    tokens_source: str = ""
    queue_s: float | None = None
    first_byte_s: float | None = None
    total_s: float = 0.0
    attempts: int = 0
    caller: str = ""
    #: playground, verify or load test when the console called under the key; "" for its holder
    via: str = ""
    via_user_id: int | None = None
