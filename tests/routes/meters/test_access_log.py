from __future__ import annotations

import asyncio
import json
import os

from routes.gateway import accesslog
from routes.gateway.accesslog import AccessLog
from tests.routes.usage.support import usage


def test_each_request_is_a_line_of_json():
    reading, writing = os.pipe()

    async def work():
        log = AccessLog(writing)
        for n in range(30):
            log.write(usage(n, model="中文"))
        await asyncio.sleep(0.3)
        log.write(usage(30))
        log.close()

    asyncio.run(work())
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        lines = [json.loads(line) for line in file]
    assert len(lines) == 31
    assert lines[0]["timestamp"] == "2026-05-04T12:00:00.000000Z"
    assert (lines[0]["status"], lines[0]["model"], lines[0]["key_id"]) == (200, "中文", 1)


def test_any_text_stays_within_its_line():
    line = accesslog.access_line(
        usage(model='a"\n\\\x00\ud800中', caller='"', error_code="\u2028", queue_s=0.5)
    )
    assert line.count(b"\n") == 1
    found = json.loads(line)
    assert found["model"] == 'a"\n\\\x00?中'
    assert (found["caller"], found["queue_s"], found["first_byte_s"]) == ('"', 0.5, None)


def test_a_slow_reader_holds_no_request(monkeypatch):
    monkeypatch.setattr(accesslog, "MAX_WAITING", 200_000)
    reading, writing = os.pipe()

    async def work():
        log = AccessLog(writing)
        for _round in range(5):
            for n in range(500):
                log.write(usage(n))
            await asyncio.sleep(0.25)
        assert log.dropped > 0
        # the reader reads after all
        received = 0
        while log._waiting or log._rows:
            received += len(await asyncio.to_thread(os.read, reading, 1 << 20))
            await asyncio.sleep(0)
        assert received > 0
        log.close()

    asyncio.run(work())


def test_a_reader_that_is_gone_stops_nothing():
    reading, writing = os.pipe()
    os.close(reading)

    async def work():
        log = AccessLog(writing)
        log.write(usage())
        await asyncio.sleep(0.3)
        assert log.dropped == 1
        log.close()

    asyncio.run(work())
