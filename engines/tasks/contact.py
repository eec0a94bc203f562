"""First contact, and contact after a change of how a host is reached."""

from __future__ import annotations

from celery import shared_task

from engines.actions.contact_host import ContactHost
from engines.models import Host
from kvadmin.actions import Actor


@shared_task(ignore_result=True)
def contact_host(host_id: int) -> None:
    host = Host.objects.filter(pk=host_id).first()
    if host is not None:
        ContactHost(Actor.system(), host=host).run()
