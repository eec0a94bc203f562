"""The folders of starts on a host: what goes of them, and when."""

from __future__ import annotations

from collections.abc import Iterable

from django.conf import settings

from engines.choices import Launcher
from engines.models import Engine, EngineStart
from engines.ssh.errors import HostError, HostUnreachable
from engines.ssh.session import Session
from kvadmin.sentences import gettext as _

#: each argument is a folder that kvadmin made; a link in its place is left alone
_REMOVE = """
for folder; do
    if [ ! -L "$folder" ] && [ -d "$folder" ]; then rm -rf -- "$folder" || exit 1; fi
done
"""
_RMDIR = 'for folder; do rmdir -- "$folder" 2>/dev/null; done; true'


def folders_of(starts: Iterable[EngineStart]) -> list[str]:
    """Folders that these starts made and nobody else uses: each is named by its engine and its marker."""
    return [
        start.directory
        for start in starts
        if start.launcher != Launcher.ADOPTED
        and start.directory.endswith(f"/engines/{start.engine_id}/{start.marker}")
    ]


def remove_folders(session: Session, folders: list[str], *, timeout_s: float = 300) -> None:
    """Remove the folders of starts, and their engine's folder if it is empty then; a HostError if not."""
    for first in range(0, len(folders), 50):
        some = folders[first : first + 50]
        result = session.run(_REMOVE, args=some, timeout_s=timeout_s)
        if result.status:
            raise HostError(
                _("Folders of earlier starts could not be removed: %(error)s")
                % {"error": result.stderr.strip().rpartition("\n")[2] or result.status}
            )
        session.run(_RMDIR, args=sorted({folder.rpartition("/")[0] for folder in some}), timeout_s=30)


def prune(session: Session, engine: Engine) -> tuple[int, str]:
    """Remove what is on the host of starts that ended, but for the newest KVADMIN_KEEP_STARTS.

    How many starts that were, and a sentence when the host would not. Raises HostUnreachable.
    """
    newest = engine.starts.order_by("-number").values("pk")[: settings.KVADMIN_KEEP_STARTS]
    old = list(
        engine.starts.filter(ended_at__isnull=False)
        .exclude(pk__in=list(newest.values_list("pk", flat=True)))
        .exclude(pk=engine.current_start_id)
        .exclude(log_path="")
        .exclude(launcher=Launcher.ADOPTED)
    )
    if not old:
        return 0, ""
    try:
        remove_folders(session, folders_of(old))
    except HostUnreachable:
        raise
    except HostError as error:
        return 0, error.message
    EngineStart.objects.filter(pk__in=[start.pk for start in old]).update(log_path="")
    return len(old), ""
