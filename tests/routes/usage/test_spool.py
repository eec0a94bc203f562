from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys

import pytest

from kvadmin.env import BASE_DIR
from routes.gateway.slots import Slot
from routes.gateway.spool import Ledger, read_lines
from routes.gateway.usagelines import COLUMNS, HEAD
from tests.routes.usage.support import usage


def lines_of(path) -> list[bytes]:
    head, data, _after = read_lines(path, 0, 1 << 20)
    assert head in {HEAD, b""}
    return data.splitlines()


def test_a_row_is_on_disk_when_record_returns(tmp_path):
    ledger = Ledger(tmp_path)
    row = usage(prompt_tokens=7)
    ledger.record(row)
    (file,) = ledger.slot.folder.glob("*.rows")
    (line,) = lines_of(file)
    cells = dict(zip(COLUMNS, line.decode().split("\t"), strict=True))
    assert cells["request_id"] == row.request_id
    assert float(cells["at"]) == row.at
    assert cells["prompt_tokens"] == "7"
    assert cells["first_byte_s"] == "\\N"
    ledger.close()


def test_a_killed_process_leaves_its_rows(tmp_path):
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from routes.gateway.spool import Ledger\n"
        "from tests.routes.usage.support import usage\n"
        "import asyncio\n"
        "async def work():\n"
        "    ledger = Ledger(Path(sys.argv[1]))\n"
        "    for n in range(25):\n"
        "        ledger.record(usage(n))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "import django; django.setup()\n"
        "asyncio.run(work())\n"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "kvadmin.settings"}
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=BASE_DIR, env=environment, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    ledger = Ledger(tmp_path)
    # the same folder is free again, and what is in it was found
    assert ledger.slot.number == 0
    assert sum(len(lines_of(path)) for path in ledger.closed) == 25
    ledger.record(usage())
    assert len(list(ledger.slot.folder.glob("*.rows"))) == 2
    ledger.close()


def test_a_torn_last_line_is_left_out(tmp_path):
    ledger = Ledger(tmp_path)
    for n in range(3):
        ledger.record(usage(n))
    ledger.rotate()
    path = ledger.closed[0]
    whole = path.read_bytes()
    for cut in range(len(whole) - 1, len(whole) - 60, -1):
        path.write_bytes(whole[:cut])
        assert len(lines_of(path)) == 2
    path.write_bytes(whole[: len(HEAD) // 2])
    assert lines_of(path) == []
    ledger.close()


def test_a_file_is_read_in_pieces(tmp_path):
    ledger = Ledger(tmp_path)
    for n in range(50):
        ledger.record(usage(n))
    ledger.rotate()
    found, offset = [], 0
    while True:
        _head, data, offset = read_lines(ledger.closed[0], offset, 300)
        if not data:
            break
        assert data.endswith(b"\n")
        found += data.splitlines()
    assert len(found) == 50
    ledger.close()


def test_two_workers_have_folders_of_their_own(tmp_path):
    one, other = Ledger(tmp_path), Ledger(tmp_path)
    assert one.slot.number != other.slot.number
    one.record(usage())
    assert other.orphans() == []
    one.close()
    ((slot, files),) = other.orphans()
    assert len(files) == 1
    # nobody else takes them meanwhile
    assert Slot.of(tmp_path, slot.number) is None
    slot.free()
    other.close()


def test_rows_of_any_text_stay_one_line(tmp_path):
    ledger = Ledger(tmp_path)
    text = "a\tb\nc\\d\x00e\r\ud800 中文\u2028\x85"
    ledger.record(usage(model=text, caller=text, error_code=text, path="x" * 10_000))
    ledger.rotate()
    _head, data, _after = read_lines(ledger.closed[0], 0, 1 << 20)
    assert data.count(b"\n") == 1
    assert data.count(b"\t") == len(COLUMNS) - 1
    assert len(data) < 2000
    ledger.close()


class Disk:
    """write() that refuses after a number of bytes, as a full disk does."""

    def __init__(self, room: int):
        self.room = room

    def write(self, descriptor: int, data: bytes) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = os.write(descriptor, data[: self.room])
        self.room -= written
        return written


@pytest.mark.parametrize("room", [0, 10, len(HEAD) + 5, len(HEAD) + 700])
def test_a_full_disk_is_said_and_no_row_is_lost(tmp_path, room):
    disk = Disk(room)
    ledger = Ledger(tmp_path, write=disk.write)
    for n in range(20):
        ledger.record(usage(n))
    assert ledger.state == "disk"
    assert not ledger.empty
    kept = sum(len(lines_of(path)) for path in ledger.slot.folder.glob("*.rows"))
    assert kept + len(ledger.held) == 20
    disk.room = 1 << 20
    ledger.retry(1000)
    assert ledger.state == "ok"
    ledger.record(usage(99))
    ledger.rotate()
    assert sum(len(lines_of(path)) for path in ledger.closed) == 21
    assert ledger.lost == 0
    ledger.close()


def test_a_spool_at_its_size_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("routes.gateway.spool.MAX_HELD", 5)
    ledger = Ledger(tmp_path, max_bytes=len(HEAD) + 1000)
    for n in range(20):
        ledger.record(usage(n))
    assert ledger.state == "full"
    assert ledger.bytes <= len(HEAD) + 1000
    assert ledger.lost > 0
    assert ledger.lost + len(ledger.held) + ledger.open_rows == 20
    ledger.close()


def test_rows_are_synced_in_a_thread(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("os.fdatasync", synced.append)

    async def work():
        ledger = Ledger(tmp_path)
        for n in range(10):
            ledger.record(usage(n))
        assert synced == []
        for _n in range(1000):
            if synced:
                break
            await asyncio.sleep(0.01)
        assert len(synced) == 1
        ledger.close()

    asyncio.run(work())
