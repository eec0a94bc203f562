from datetime import UTC, datetime, timedelta

import pytest

from engines.models import GpuSample
from engines.views.hosts.chart import gpu_memory_chart
from tests.support.factories import HostFactory

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


def sample(host, minutes, used, index=0):
    GpuSample.objects.create(
        host=host,
        taken_at=NOW - timedelta(minutes=minutes),
        index=index,
        uuid=f"GPU-{index}",
        memory_total_mib=81920,
        memory_used_mib=used,
    )


def test_no_reading_is_a_gap_and_not_a_zero():
    host = HostFactory(facts={"gpus": [{"index": 0, "name": "H200", "memory_total_mib": 81920}]})
    sample(host, 10, 10240)
    sample(host, 9, None)
    sample(host, 8, 20480)
    chart = gpu_memory_chart(host, "15m", now=NOW)
    (trace,) = chart["data"]
    values = dict(zip(trace["x"], trace["y"], strict=True))
    at = {minutes: round((NOW - timedelta(minutes=minutes)).timestamp() * 1000) for minutes in (10, 9, 8, 0)}
    assert [values[at[minutes]] for minutes in (10, 9, 8, 0)] == [10.0, None, 20.0, None]
    assert chart["layout"]["yaxis"]["range"] == [0, 81.6]
    assert "20.0 now" in chart["summary"]


def test_a_long_range_takes_the_mean_of_its_steps_and_each_gpu_has_its_line():
    host, other = HostFactory(), HostFactory()
    for minutes in (10, 11, 12):
        sample(host, minutes, 1024 * minutes)
    sample(host, 10, 2048, index=1)
    sample(other, 10, 4096, index=2)
    chart = gpu_memory_chart(host, "30d", now=NOW)
    assert [trace["name"] for trace in chart["data"]] == ["0 · GPU", "1 · GPU"]
    assert [value for value in chart["data"][0]["y"] if value is not None] == [11.0]
    assert len(chart["data"][0]["x"]) <= 400


def test_a_host_without_samples_has_an_empty_chart():
    chart = gpu_memory_chart(HostFactory(), "rubbish", now=NOW)
    assert (chart["data"], chart["empty"]) == ([], True)
