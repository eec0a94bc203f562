import asyncio
import subprocess

import pytest
from aiohttp import web
from django.core.management import CommandError, call_command

from kvadmin.actions import Actor
from kvadmin.demo import traffic
from kvadmin.demo.journey import DemoStopped, Journey
from kvadmin.management.commands.demo import Command


def test_the_stream_swings_between_its_bounds():
    wanted = [traffic.wanted_now(second) for second in range(240)]
    assert (min(wanted), max(wanted)) == (traffic.FEWEST, traffic.MOST)
    assert wanted[0] == wanted[120] == traffic.FEWEST
    assert wanted[60] == traffic.MOST


def test_requests_carry_the_engines_key_and_failures_are_counted():
    seen = []

    async def chat(request):
        seen.append((request.headers.get("Authorization"), (await request.json())["model"]))
        if len(seen) == 2:
            return web.json_response({"error": "no"}, status=500)
        return web.json_response({"usage": {"total_tokens": 7}})

    async def main():
        app = web.Application()
        app.router.add_post("/v1/chat/completions", chat)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        tally = traffic.Tally()
        await traffic.stream(
            f"http://127.0.0.1:{port}",
            "tiny",
            "secret",
            stop=lambda: tally.done >= 3,
            tally=tally,
            report=lambda _now: None,
        )
        await runner.cleanup()
        return tally

    tally = asyncio.run(main())
    assert tally.done >= 3
    assert tally.failed == 1
    assert tally.tokens == 7 * tally.done
    assert set(seen) == {("Bearer secret", "tiny")}


@pytest.mark.django_db
def test_a_step_that_fails_is_told_with_its_remedy(monkeypatch):
    from engines.choices import OperationKind, OperationState
    from engines.operations.begin import begin_operation
    from tests.support.factories import HostFactory

    monkeypatch.setattr("engines.operations.begin._enqueue", lambda *_args: None)
    operation = begin_operation(OperationKind.PROBE, actor=Actor.system(), host=HostFactory())
    operation.state, operation.message, operation.remedy = OperationState.FAILED, "No disk.", "Make room."
    operation.save()
    said = []
    journey = Journey(say=said.append, stop=lambda: False, actor=Actor.system())
    with pytest.raises(DemoStopped, match=r"No disk\. Make room\."):
        journey.follow(operation)


@pytest.mark.django_db
def test_services_that_do_not_start_end_the_demo_with_a_sentence(monkeypatch, capsys):
    """The command ends by itself, with an exit status other than 0, and says where to look."""
    monkeypatch.setattr(Command, "_console_answers", lambda _self: False)
    monkeypatch.setattr(Command, "_start_services", lambda _self: subprocess.Popen(["false"]))
    with pytest.raises(CommandError):
        call_command("demo")
    assert "kvadmin did not start" in capsys.readouterr().out
