"""Celery tasks: each takes ids, is short, and may run twice. A module here is a queue's worth.

operations: moving operations on. reconcile: desired against observed. hosts: scheduled probes.
poll: reading /metrics. rollup: partitions, rollups, retention.
"""

from engines.tasks import operations, poll, rollup

__all__ = ["operations", "poll", "rollup"]
