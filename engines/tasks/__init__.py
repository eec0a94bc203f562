"""Celery tasks: each takes ids, is short, and may run twice. A module here is a queue's worth.

operations: moving operations on. contact: first contact with a host. provision: what follows a
provisioning that did not succeed. reconcile: desired against observed. hosts: scheduled probes.
poll: reading /metrics. rollup: partitions, rollups, retention.
"""

from engines.tasks import contact, hosts, operations, poll, provision, reconcile, rollup

__all__ = ["contact", "hosts", "operations", "poll", "provision", "reconcile", "rollup"]
