"""The double of bench.engine that writes down what it counts, so that it is known also after a kill.

    python -m bench.counting JOURNAL NAME[:PORT]

A line for each thing that happens to a request, by its x-request-id: ``begin ID``, ``token ID`` for each
event of a stream that was sent, ``end ID PROMPT COMPLETION``. With continuous_usage_stats every event has the
count.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench import engine
from bench.engine import COMPLETION, EVENTS, PAUSE_MS, PROMPT, Model, Serving

_ID = re.compile(rb"\r\nx-request-id: *(\S+)", re.IGNORECASE)


@dataclass
class Counted:
    """``completion`` is what was sent; ``whole`` if the engine came to its end."""

    prompt: int = PROMPT
    completion: int = 0
    whole: bool = False


def read(journal: Path) -> dict[str, Counted]:
    """By request id; of one that was tried twice the latter."""
    found: dict[str, Counted] = {}
    # the last line may be half there
    for line in journal.read_text().rpartition("\n")[0].splitlines():
        what, request_id, *numbers = line.split()
        if what == "begin":
            found[request_id] = Counted()
        elif what == "token":
            found[request_id].completion += 1
        else:
            found[request_id] = Counted(int(numbers[0]), int(numbers[1]), whole=True)
    return found


class Counting(Serving):
    def __init__(self, model: Model, journal: int):
        super().__init__(model)
        self.journal = journal

    def note(self, text: str) -> None:
        os.write(self.journal, f"{text}\n".encode())

    def answer(self, data: bytes) -> None:
        found = _ID.search(data)
        if data[:4] == b"GET " or found is None:
            super().answer(data)
            return
        request_id = found[1].decode()
        self.note(f"begin {request_id}")
        if b'"stream":true' not in data and b'"stream": true' not in data:
            self.note(f"end {request_id} {PROMPT} {COMPLETION}")
            self.transport.write(self.model.whole)
            return
        self.transport.write(self.model.head)
        usage = b'"include_usage":true' in data.replace(b" ", b"")
        continuous = b'"continuous_usage_stats":true' in data.replace(b" ", b"")
        asyncio.get_running_loop().create_task(self.stream(request_id, usage, continuous))

    async def stream(self, request_id: str, usage: bool, continuous: bool) -> None:
        model, plain = self.model, self.model.event
        for number in range(1, EVENTS + 1):
            if self.transport is None:
                return
            event = with_count(plain, number) if continuous else plain
            self.note(f"token {request_id}")
            self.transport.write(event)
            await asyncio.sleep(PAUSE_MS / 1000)
        if self.transport is not None:
            self.note(f"end {request_id} {PROMPT} {EVENTS}")
            self.transport.write((model.usage(EVENTS) if usage else b"") + model.done)


def with_count(event: bytes, number: int) -> bytes:
    """A chunk's event with the tokens so far."""
    value = json.loads(event.partition(b"data: ")[2].partition(b"\n\n")[0])
    value["usage"] = {
        "prompt_tokens": PROMPT,
        "total_tokens": PROMPT + number,
        "completion_tokens": number,
    }
    return engine._chunk(engine._compact(value))


async def serve(journal: Path, name: str, port: int) -> None:
    lines = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    model = Model(name)
    server = await asyncio.get_running_loop().create_server(
        lambda: Counting(model, lines), "127.0.0.1", port, backlog=4096
    )
    print(json.dumps([server.sockets[0].getsockname()[1]]), flush=True)
    await asyncio.Event().wait()


def main() -> None:
    name, _, port = sys.argv[2].partition(":")
    uvloop.run(serve(Path(sys.argv[1]), name, int(port or 0)))


if __name__ == "__main__":
    main()
