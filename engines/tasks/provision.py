"""What follows a provisioning that did not succeed."""

from __future__ import annotations

from celery import shared_task

from engines.models import Operation
from engines.provision import job, scripts
from engines.ssh.errors import HostUnreachable
from engines.ssh.session import session_for


@shared_task(
    ignore_result=True,
    autoretry_for=(HostUnreachable,),
    max_retries=10,
    retry_backoff=5,
    retry_backoff_max=300,
)
def end_jobs(operation_id: int, *, remove: bool) -> None:
    """End every process of a provisioning on its host; with ``remove``, take its half-made folder away."""
    operation = Operation.objects.select_related("host").filter(pk=operation_id).first()
    if operation is None:
        return
    owners = {str(operation.uuid), operation.scratch.get("owner") or str(operation.uuid)}
    session = session_for(operation.host)
    try:
        for owner in owners:
            session.run(job.END, args=[owner], timeout_s=30)
            if remove and not operation.scratch.get("present"):
                session.run(scripts.REMOVE_BEGUN, args=[operation.scratch["folder"], owner], timeout_s=300)
    finally:
        session.close()
