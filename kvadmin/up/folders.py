"""Folders that only their owner can enter."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kvadmin.up.problems import CannotRun


def private_folder(path: Path, *, uid: int | None = None, gid: int | None = None) -> Path:
    """Make ``path`` with mode 0700, owned by ``uid``; one that is there already has to be so.

    Parents that are missing are made too. The permissions of an existing folder are never changed:
    CannotRun says what is wrong with it.
    """
    owner = os.geteuid() if uid is None else uid
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
        if uid is not None and uid != os.geteuid():
            os.chown(path, uid, -1 if gid is None else gid)
    except FileExistsError:
        pass
    except OSError as error:
        raise CannotRun(
            f"Cannot make the folder {path}: {error.strerror}. "
            "Make it writable, or set KVADMIN_HOME to a folder that is."
        ) from error
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner or found.st_mode & 0o077:
        raise CannotRun(
            f"The folder {path} has to belong to user id {owner} and be closed to everybody else "
            f"(mode 0700), and it is not. Remove it, or mend it with chown and chmod."
        )
    return path
