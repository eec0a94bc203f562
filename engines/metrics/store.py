"""Writes readings to PostgreSQL, many at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.utils import timezone
from psycopg.errors import UniqueViolation

from engines.metrics.columns import BUCKETS, HISTOGRAMS, SCALARS
from engines.metrics.parse import Histogram
from engines.metrics.partitions import SAMPLES, ensure_partitions

_COLUMNS = ("engine_id", "taken_at", *SCALARS, *BUCKETS)
_COPY = f"COPY {{}} ({', '.join(_COLUMNS)}) FROM STDIN"
_NO_BUCKETS = ["\\N"] * len(BUCKETS)

#: rows older than this may be behind the rollup, which then has to go back
_LATE = timedelta(seconds=8)


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of one engine; ``histograms`` is empty in most (they are kept once a minute)."""

    engine_id: int
    taken_at: datetime
    values: Mapping[str, float]
    histograms: Mapping[str, Histogram] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Polled:
    """That an engine was asked, and when it answered (None: it did not). ``changed`` if pages show it."""

    engine_id: int
    polled_at: datetime
    answered_at: datetime | None
    changed: bool


class SampleStore:
    """Writes batches. Remembers which partitions and bucket layouts exist, so one per process.

    Not for several threads at once.
    """

    def __init__(self) -> None:
        self._days: set[datetime] = set()
        self._layouts: dict[tuple[float, ...], int] = {}

    def write(self, samples: Sequence[Sample]) -> None:
        """Write readings in one transaction. Rows that are there already (engine and time) stay.

        After rows that are late the rollups go back to their minute.
        """
        if not samples:
            return
        self._ensure_days(samples)
        rows = "".join([self._row(sample) for sample in samples])
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                with cursor.copy(_COPY.format("engines_sample")) as copy:
                    copy.write(rows)
                self._rewind(cursor, samples)
        except UniqueViolation:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(
                    "CREATE TEMPORARY TABLE engines_sample_batch (LIKE engines_sample) ON COMMIT DROP"
                )
                with cursor.copy(_COPY.format("engines_sample_batch")) as copy:
                    copy.write(rows)
                cursor.execute(
                    "INSERT INTO engines_sample SELECT * FROM engines_sample_batch ON CONFLICT DO NOTHING"
                )
                self._rewind(cursor, samples)

    def _ensure_days(self, samples: Sequence[Sample]) -> None:
        days = {SAMPLES.start(sample.taken_at) for sample in samples}
        if days <= self._days:
            return
        for day in days:
            ensure_partitions(day, day, (SAMPLES,))
        self._days |= days

    def _rewind(self, cursor, samples: Sequence[Sample]) -> None:
        oldest = min(sample.taken_at for sample in samples)
        if oldest < timezone.now() - _LATE:
            cursor.execute(
                "UPDATE engines_rollup SET upto = LEAST(upto, date_trunc('minute', %s::timestamptz))"
                " WHERE level = 'minute'",
                [oldest],
            )

    def _row(self, sample: Sample) -> str:
        get = sample.values.get
        cells = [str(sample.engine_id), sample.taken_at.isoformat()]
        for name in SCALARS:
            value = get(name)
            cells.append("\\N" if value is None else repr(value))
        if not sample.histograms:
            cells += _NO_BUCKETS
        else:
            found = [sample.histograms.get(name) for name in HISTOGRAMS]
            cells.append(_array(self._layout(one.bounds) if one else 0 for one in found))
            cells += [_array(map(int, one.counts)) if one else "\\N" for one in found]
            cells += ["\\N" if one is None or one.sum is None else repr(one.sum) for one in found]
        return "\t".join(cells) + "\n"

    def _layout(self, bounds: tuple[float, ...]) -> int:
        """The number of a layout of buckets, made at first sight."""
        number = self._layouts.get(bounds)
        if number is None:
            with connection.cursor() as cursor:
                cursor.execute(
                    "INSERT INTO engines_bucket_layout (bounds) VALUES (%s) ON CONFLICT DO NOTHING",
                    [list(bounds)],
                )
                cursor.execute("SELECT id FROM engines_bucket_layout WHERE bounds = %s", [list(bounds)])
                number = self._layouts[bounds] = cursor.fetchone()[0]
        return number


def _array(numbers: Iterable[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def mark_polled(polled: Sequence[Polled]) -> None:
    """Write when engines were asked and answered; nothing else of an engine is touched.

    An engine that somebody has locked is passed over: its next poll writes its times. So this never waits
    for, nor blocks for long, those who move engines.
    """
    if not polled:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH free AS (
                SELECT id FROM engines_engine WHERE id = ANY(%(ids)s) FOR NO KEY UPDATE SKIP LOCKED
            )
            UPDATE engines_engine AS engine
            SET polled_at = GREATEST(engine.polled_at, news.polled_at),
                answered_at = GREATEST(engine.answered_at, news.answered_at),
                seq = CASE WHEN news.changed THEN nextval('engines_change_seq') ELSE engine.seq END
            FROM free
            JOIN unnest(%(ids)s::int8[], %(polled)s::timestamptz[], %(answered)s::timestamptz[],
                        %(changed)s::bool[]) AS news (id, polled_at, answered_at, changed)
                ON news.id = free.id
            WHERE engine.id = free.id
            """,
            {
                "ids": [one.engine_id for one in polled],
                "polled": [one.polled_at for one in polled],
                "answered": [one.answered_at for one in polled],
                "changed": [one.changed for one in polled],
            },
        )
