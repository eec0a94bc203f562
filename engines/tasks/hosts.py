"""Scheduled looks at the hosts: every minute a light one, every six hours a whole probe."""

from __future__ import annotations

import logging
from datetime import timedelta

from celery import shared_task
from django.db import transaction
from django.utils import timezone

from engines.actions.probe_host import ProbeHost
from engines.choices import HostState
from engines.host_states import note_host_error, note_host_online
from engines.launch.folders import remove_folders
from engines.models import GpuSample, Host
from engines.operations.probe import save_samples
from engines.probe import nvidia_smi, records, scripts
from engines.ssh.errors import CommandTimeout, HostError, HostUnreachable
from engines.ssh.session import session_for
from kvadmin.actions import ActionError, Actor
from kvadmin.retention import delete_in_pieces

logger = logging.getLogger(__name__)

SAMPLES_KEPT = timedelta(days=30)
_WATCHED = (HostState.ONLINE, HostState.UNREACHABLE)
#: rows deleted at once, so that no lock is held for long
_TRIM_AT_ONCE = 10_000
_FIGURES = (
    "memory_total_mib",
    "memory_used_mib",
    "memory_free_mib",
    "utilization_percent",
    "temperature_c",
    "power_w",
)


@shared_task(ignore_result=True)
def sample_hosts() -> None:
    """Beat, every minute: one short task for each host that is, or was just now, reachable."""
    for host_id in Host.objects.filter(state__in=_WATCHED).values_list("pk", flat=True):
        sample_host.apply_async((host_id,), expires=55)


@shared_task(ignore_result=True)
def sample_host(host_id: int) -> None:
    """Is the host there, since which boot, and how full are its GPUs."""
    host = Host.objects.select_related("jump").filter(pk=host_id, state__in=_WATCHED).first()
    if host is None:
        return
    try:
        session = session_for(host)
        try:
            result = session.run(scripts.SAMPLE, timeout_s=45)
        finally:
            session.close()
    except CommandTimeout:
        # it answers, and nvidia-smi hangs: the next whole probe says so
        return
    except HostError as error:
        note_host_error(host, error)
        return
    note_host_online(host, boot_id=records.parse_contact(result.stdout).boot_id)
    report = nvidia_smi.parse_sample(result.stdout)
    save_samples(host, report)
    _refresh_figures(host, report)


@shared_task(ignore_result=True)
def probe_hosts() -> None:
    """Beat, every six hours: probe each host that is online, or that refused to sign us in when last asked.

    One that is being probed already is left alone.
    """
    for host in Host.objects.filter(state__in=[HostState.ONLINE, HostState.REFUSED]):
        try:
            ProbeHost(Actor.system(), host=host).run()
        except ActionError:
            continue


@shared_task(
    ignore_result=True,
    autoretry_for=(HostUnreachable,),
    max_retries=12,
    retry_backoff=10,
    retry_backoff_max=600,
)
def remove_start_folders(host_id: int, folders: list[str]) -> None:
    """Remove folders that starts of an engine, gone by now, had on a host. Tried for over an hour."""
    host = Host.objects.select_related("jump").filter(pk=host_id).first()
    if host is None:
        return
    try:
        session = session_for(host)
        try:
            remove_folders(session, folders)
        finally:
            session.close()
    except HostUnreachable:
        raise
    except HostError as error:
        logger.warning("host %s: start folders stay: %s", host_id, error.message)


@shared_task(ignore_result=True)
def trim_gpu_samples() -> None:
    """Beat, every hour: drop samples older than SAMPLES_KEPT."""
    before = timezone.now() - SAMPLES_KEPT
    delete_in_pieces(GpuSample.objects.filter(taken_at__lt=before), at_once=_TRIM_AT_ONCE)


def _refresh_figures(host: Host, report: nvidia_smi.GpuReport) -> None:
    """The figures that move, in Host.facts; the rest of a GPU's facts stays until the next probe."""
    figures = {gpu["uuid"]: {name: gpu[name] for name in _FIGURES} for gpu in report.gpus}
    with transaction.atomic():
        row = Host.objects.select_for_update().only("facts").get(pk=host.pk)
        known = row.facts.get("gpus")
        if not known or not figures:
            return
        row.facts["gpus"] = [{**gpu, **figures.get(gpu["uuid"], {})} for gpu in known]
        Host.objects.filter(pk=host.pk).update(facts=row.facts)
