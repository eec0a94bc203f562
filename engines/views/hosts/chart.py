"""The figure of a host's GPU memory over time."""

from __future__ import annotations

from typing import Any

from engines.models import Host


def gpu_memory_figure(host: Host, span: str) -> dict[str, Any]:
    """Plotly figure JSON {data, layout} of the memory in use for each GPU."""
    return {"data": [], "layout": {}}
