"""What engines say: the newest reading, and values over time. No data is null, never 0."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from django.http import QueryDict
from django.utils import timezone
from django.utils.translation import gettext as _
from rest_framework import serializers

from engines.metrics.columns import COUNTERS, GAUGES, HISTOGRAMS
from engines.metrics.current import current_readings
from engines.metrics.series import percentiles, scalars
from engines.models import Engine
from engines.views.charts import BadRange, window_of
from kvadmin.api.names import unknown_name

_PERCENTILE = re.compile(rf"({'|'.join(HISTOGRAMS)})_p(50|90|95|99)")
_NAMES = (*GAUGES, *COUNTERS, *(f"{name}_p{q}" for name in HISTOGRAMS for q in (50, 90, 95, 99)))
_MOST = 20


class ReadingSerializer(serializers.Serializer):
    taken_at = serializers.DateTimeField(
        allow_null=True, help_text="null when it has not answered lately; then all else is null too."
    )
    kv_usage = serializers.FloatField(allow_null=True, help_text="KV cache in use, 0 to 1.")
    running = serializers.FloatField(allow_null=True, help_text="Requests running.")
    waiting = serializers.FloatField(allow_null=True, help_text="Requests waiting.")
    prompt_tokens_per_s = serializers.FloatField(allow_null=True)
    generation_tokens_per_s = serializers.FloatField(allow_null=True)
    prefix_hit_rate = serializers.FloatField(allow_null=True, help_text="0 to 1.")
    preemptions = serializers.FloatField(allow_null=True)
    ttft_p95 = serializers.FloatField(allow_null=True, help_text="Seconds.")
    inter_token_p50 = serializers.FloatField(allow_null=True, help_text="Seconds.")
    inter_token_p99 = serializers.FloatField(allow_null=True, help_text="Seconds.")


class SeriesQuery(serializers.Serializer):
    metrics = serializers.CharField(
        default="kv_usage_ratio,requests_running,requests_waiting",
        max_length=1000,
        help_text=(
            "Names with commas between: gauges (kv_usage_ratio), counters, which come as rates per second "
            "(generation_tokens), and percentiles (ttft_p95)."
        ),
    )
    range = serializers.CharField(default="", allow_blank=True, help_text="15m, 3h, 24h, 7d or 30d.")

    def get_fields(self) -> dict[str, serializers.Field]:
        fields = super().get_fields()
        # not a name that a class can have
        fields["from"] = serializers.CharField(
            default="", allow_blank=True, help_text="In place of range: the beginning, ISO 8601 or seconds."
        )
        fields["to"] = serializers.CharField(
            default="", allow_blank=True, help_text="The end; now by default."
        )
        return fields

    def validate_metrics(self, text: str) -> list[str]:
        names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        for name in names:
            if name not in _NAMES:
                raise serializers.ValidationError(
                    unknown_name(name, _NAMES, _("There is no metric “%(name)s”."))
                )
        if not 1 <= len(names) <= _MOST:
            raise serializers.ValidationError(_("Ask for 1 to %(most)d metrics at once.") % {"most": _MOST})
        return names


class LineSerializer(serializers.Serializer):
    times = serializers.ListField(child=serializers.IntegerField(), help_text="Milliseconds since 1970.")
    values = serializers.ListField(
        child=serializers.FloatField(allow_null=True), help_text="As many; null where nothing is known."
    )


class SeriesSerializer(serializers.Serializer):
    start = serializers.DateTimeField()
    end = serializers.DateTimeField()
    step_s = serializers.FloatField(help_text="Seconds that one value stands for.")
    series = serializers.DictField(child=LineSerializer(), help_text="Metric to its values.")


def reading(engine: Engine) -> dict[str, Any]:
    return asdict(current_readings([engine.pk])[engine.pk])


def series(engine: Engine, asked: dict[str, Any]) -> dict[str, Any]:
    """What SeriesQuery asks for."""
    params = QueryDict(mutable=True)
    params.update({name: asked[name] for name in ("range", "from", "to") if asked[name]})
    try:
        span, _name = window_of(params, now=timezone.now())
    except BadRange as error:
        raise serializers.ValidationError({"from" if asked["from"] else "range": [str(error)]}) from error
    names = asked["metrics"]
    gauges = [name for name in names if name in GAUGES]
    counters = [name for name in names if name in COUNTERS]
    lines: dict[str, dict[str, list]] = {}
    if gauges or counters:
        found = scalars(engine.pk, span, gauges=gauges, counters=counters)
        for values in (found.gauges, found.rates):
            lines |= {name: {"times": found.times, "values": line} for name, line in values.items()}
    for name in names:
        match = _PERCENTILE.fullmatch(name)
        if match is not None:
            q = int(match[2]) / 100
            one = percentiles(engine.pk, span.for_buckets(), match[1], [q])
            values = [None if at is None else at.value for at in one.values[q]]
            lines[name] = {"times": one.times, "values": values}
    return {"start": span.start, "end": span.end, "step_s": span.step_s, "series": lines}
