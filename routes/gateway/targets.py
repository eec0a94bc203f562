"""What the gateway keeps of every target beside its record: connections, health, load."""

from __future__ import annotations

import zlib

from routes.gateway.health import Health
from routes.gateway.paths import Path
from routes.gateway.records import TargetRecord
from routes.gateway.upstream import Origin


class Target:
    __slots__ = ("heads", "health", "in_flight", "origin", "record", "seed", "shown")

    def __init__(self, record: TargetRecord, origin: Origin, health: Health):
        self.record, self.origin, self.health = record, origin, health
        self.in_flight = 0
        #: first lines of a request, by path
        self.heads: dict[str, bytes] = {}
        self.seed = zlib.crc32(f"{record.id} {record.base_url}".encode())
        self.shown = f"The target {record.name or record.base_url}"

    def change(self, record: TargetRecord) -> None:
        """Follow a record of the same address."""
        self.record = record
        self.heads = {}
        self.shown = f"The target {record.name or record.base_url}"

    def head(self, path: Path, rest: str = "") -> bytes:
        """Request line and the headers that are the same for every request on this path."""
        found = self.heads.get(path.name) if not rest else None
        if found is None:
            record, origin = self.record, self.origin
            lines = [
                f"{path.method} {origin.path}{path.engine}{rest} HTTP/1.1",
                f"host: {origin.authority}",
                "accept-encoding: identity",
            ]
            if record.api_key and record.api_key != "EMPTY":
                lines.append(f"authorization: Bearer {record.api_key}")
                if path.anthropic:
                    lines.append(f"x-api-key: {record.api_key}")
            found = ("\r\n".join(lines) + "\r\n").encode("latin-1", "replace")
            if not rest:
                self.heads[path.name] = found
        return found
