"""prometheus_client's parser as the reference for engines.metrics.parse, and pages to try both on."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from engines.metrics.names import METRICS, Combine, Kind, page_names
from engines.metrics.parse import MOST

DATA = Path(__file__).parents[2] / "data" / "metrics"


def sample(name: str) -> str:
    return (DATA / name).read_text()


def expected(text: str) -> tuple[dict[str, float], dict[str, dict[float, float]]]:
    """Scalars and histograms (bound -> cumulative count) of a page, slowly and by the book."""
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for item in family.samples:
            samples.setdefault(item.name, []).append((item.labels, item.value))
    values: dict[str, float] = {}
    histograms: dict[str, dict[float, float]] = {}
    for metric in METRICS.values():
        for name in page_names(metric.name):
            if metric.kind is Kind.HISTOGRAM:
                found = samples.get(f"{name}_bucket", [])
                if not found:
                    continue
                merged: dict[float, float] = {}
                for labels, value in found:
                    merged[float(labels["le"])] = merged.get(float(labels["le"]), 0) + value
                histograms[metric.name] = dict(sorted(merged.items()))
                break
            chosen = [
                value
                for labels, value in samples.get(name, [])
                if metric.label is None or labels.get(metric.label[0]) == metric.label[1]
            ]
            if not chosen:
                continue
            numbers = [
                value
                for value in chosen
                if abs(value) <= MOST and (metric.lowest is None or value >= metric.lowest)
            ]
            if numbers:
                values[metric.name] = {
                    Combine.SUM: sum(numbers),
                    Combine.MEAN: sum(numbers) / len(numbers),
                    Combine.MAX: max(numbers),
                }[metric.combine]
            break
    return values, histograms


@lru_cache(maxsize=1)
def _series() -> dict:
    return json.loads(sample("vllm-series.json"))


def versions() -> list[str]:
    return _series()["versions"]


def series_of(version: str, engine: str) -> list[dict]:
    """The series that a version's engine generation (V0 or V1) shows: name, type, labels, buckets."""
    at = versions().index(version)
    return [
        row
        for row in _series()["series"]
        if row["engine"] in (engine, "prometheus_client")
        and any(first <= at <= last for first, last in row["seen"])
    ]


def generations(version: str) -> list[str]:
    at = versions().index(version)
    found = {
        row["engine"]
        for row in _series()["series"]
        if any(first <= at <= last for first, last in row["seen"])
    }
    return sorted(found & {"V0", "V1"})


#: values of the labels that split a metric
_SPLIT = {
    "reason": ("capacity", "deferred"),
    "sleep_state": ("awake", "weights_offloaded", "discard_all"),
    "finished_reason": ("stop", "length", "abort", "error"),
}


def page_of(version: str, engine: str, ranks: int = 1) -> str:
    """A page with all of a version's series, each with another value."""
    lines: list[str] = []
    number = 0
    for row in series_of(version, engine):
        lines += [f"# HELP {row['name']} Words.", f"# TYPE {row['name']} {row['type']}"]
        if row["type"] == "summary":
            continue
        for rank in range(ranks if "engine" in row["labels"] else 1):
            fixed = {"engine": str(rank), "model_name": "qwen3-8b"}
            split = next((label for label in row["labels"] if label in _SPLIT), None)
            for choice in _SPLIT.get(split or "", ("",)):
                number += 1
                labels = {label: fixed.get(label, "x") for label in row["labels"]}
                if split:
                    labels[split] = choice
                text = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
                if row["type"] != "histogram":
                    lines.append(
                        f"{row['name']}{{{text}}} {number / 7}" if text else f"{row['name']} {number}.5"
                    )
                    continue
                count = 0
                for bound in [*row.get("buckets", [1.0, 2.0, 5.0]), "+Inf"]:
                    count += number % 5
                    comma = "," if text else ""
                    lines.append(f'{row["name"]}_bucket{{{text}{comma}le="{bound}"}} {count}.0')
                braces = f"{{{text}}}" if text else ""
                lines.append(f"{row['name']}_count{braces} {count}.0")
                lines.append(f"{row['name']}_sum{braces} {number * 1.5}")
    return "\n".join(lines) + "\n"
