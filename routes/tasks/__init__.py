"""Celery tasks: each is short and may run twice. rollup: rollups, partitions and retention of usage."""

from routes.tasks import rollup

__all__ = ["rollup"]
