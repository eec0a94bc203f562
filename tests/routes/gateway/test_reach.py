"""Targets behind TLS and IPv6, many idle callers, and parts that fail in the middle."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
import tracemalloc

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.gateway import Gateway, run, until
from tests.support.upstream import Upstream, compact, silent, stream

BODY = compact({"model": "qwen3-8b", "messages": []})
STREAM = compact({"model": "qwen3-8b", "messages": [], "stream": True})
PATH = "/v1/chat/completions"


def certificate(folder, name: str, address: str | None = None) -> tuple[str, ssl.SSLContext]:
    """(path of the certificate, a server's context with it)."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    names: list[x509.GeneralName] = [x509.DNSName(name)]
    if address:
        names.append(x509.IPAddress(ipaddress.ip_address(address)))
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / f"{name}.pem", folder / f"{name}.key"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, private)
    return str(public), context


def test_an_outside_target_is_reached_by_tls_and_verified(tmp_path):
    trusted, server = certificate(tmp_path, "outside.test", "127.0.0.1")
    _, other = certificate(tmp_path, "other.test")

    async def main():
        verified = Gateway(tls=ssl.create_default_context(cafile=trusted))
        async with Upstream(tls=server) as engine, Upstream(tls=other) as impostor, verified as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            gateway.add_route("impostor", impostor.url)
            for _ in range(3):
                assert (await gateway.chat()).status == 200
            engine.answer = stream("a", "b")
            assert (await gateway.chat(stream=True)).text == "ab"
            assert engine.connections == 1
            reply = await gateway.chat(model="impostor")
            assert reply.status == 503
            assert "certificate that is not trusted" in reply.error["message"]
            assert not impostor.calls

    run(main())


def test_a_certificate_for_another_name_is_not_enough(tmp_path):
    trusted, server = certificate(tmp_path, "outside.test")

    async def main():
        verified = Gateway(tls=ssl.create_default_context(cafile=trusted))
        async with Upstream(tls=server) as engine, verified as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            reply = await gateway.chat()
            assert (reply.status, len(engine.calls)) == (503, 0)

    run(main())


def test_a_target_by_ipv6_is_reached():
    async def main():
        async with Upstream(host="::1") as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            assert (await gateway.chat()).status == 200
            assert engine.calls[0].headers["host"] == f"[::1]:{engine.port}"

    run(main())


def test_a_name_that_cannot_be_resolved_is_said():
    async def main():
        async with Gateway() as gateway:
            gateway.add_route("qwen3-8b", "http://no-such-host.invalid:8000")
            reply = await gateway.chat()
            assert (reply.status, reply.error["code"]) == (503, "no_target_available")
            assert "no-such-host.invalid" in reply.error["message"]

    run(main())


def test_a_target_that_moves_is_followed():
    async def main():
        async with Upstream() as old, Upstream() as new, Gateway() as gateway:
            route = gateway.add_route("qwen3-8b", {"base_url": old.url, "id": 77})
            assert (await gateway.chat()).status == 200
            for changed, fields in ((new, {"base_url": new.url}), (new, {"api_key": "sk-2"})):
                import dataclasses

                (record,) = route.targets
                route = dataclasses.replace(route, targets=(dataclasses.replace(record, **fields),))
                gateway.snapshot.routes["qwen3-8b"] = route
                before = len(changed.calls)
                assert (await gateway.chat()).status == 200
                assert len(changed.calls) == before + 1
            assert new.calls[-1].headers["authorization"] == "Bearer sk-2"
            assert len(old.calls) == 1

    run(main())


def test_many_idle_callers_cost_little_and_delay_nobody():
    count = 2000

    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            loop = asyncio.get_running_loop()
            transports = []
            for _ in range(count):
                transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", gateway.port)
                transports.append(transport)
            await until(lambda: len(gateway.app.connections) == count)
            grown = tracemalloc.get_traced_memory()[0] - before
            tracemalloc.stop()
            # both ends of each are in this process
            assert grown / count < 20_000
            assert (await gateway.chat()).status == 200
            for transport in transports:
                transport.abort()
            await until(lambda: not gateway.app.connections)

    run(main())


def test_many_streams_at_once_arrive_whole():
    async def main():
        async with Upstream(stream(*"abcdefghij", pause_s=0.01)) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            replies = await asyncio.gather(*(gateway.chat(stream=True) for _ in range(200)))
            assert {reply.text for reply in replies} == {"abcdefghij"}
            assert len({reply.headers["x-request-id"] for reply in replies}) == 200
            assert len(gateway.rows) == 200

    run(main())


@pytest.mark.parametrize("streamed", [False, True])
def test_a_fault_of_our_own_takes_one_request_and_leaves_nothing(monkeypatch, streamed):
    from routes.gateway import answering
    from routes.gateway.sse import Stream

    def breaks(*args: object) -> None:
        raise ZeroDivisionError

    async def main():
        async with Upstream(stream("a", "b") if streamed else None) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            with monkeypatch.context() as patch:
                patch.setattr(Stream, "feed", breaks)
                patch.setattr(answering, "counts_in", breaks)
                async with gateway.client() as client:
                    client.write(gateway.head_of(PATH, STREAM if streamed else BODY))
                    reply = await client.reply()
                    assert (reply.status, reply.error["code"]) == (500, "internal_error")
            assert gateway.limits.open == 0
            assert (await gateway.chat(stream=streamed)).status == 200
            assert [row.error_code for row in gateway.rows] == ["internal_error", ""]

    run(main())


def test_a_fault_over_a_request_takes_one_connection(monkeypatch):
    from routes.gateway import exchange

    def breaks(*args: object) -> None:
        raise ZeroDivisionError

    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            with monkeypatch.context() as patch:
                patch.setattr(exchange, "find_route", breaks)
                reply = await gateway.chat()
                assert (reply.status, reply.error["code"]) == (500, "internal_error")
            assert gateway.limits.open == 0
            assert (await gateway.chat()).status == 200

    run(main())


def test_the_slot_comes_back_however_a_request_ends():
    async def main():
        async with Upstream(silent) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url, first_byte_s=0.05)
            assert (await gateway.chat()).status == 504
            async with gateway.client() as client:
                client.write(gateway.head_of(PATH, BODY))
                await until(lambda: len(engine.calls) == 2)
            await until(lambda: len(gateway.rows) == 2)
            engine.answer = stream("a", then="cut")
            await gateway.chat(stream=True)
            assert gateway.limits.open == 0
            assert [grant.released for grant in gateway.limits.grants] == [1, 1, 1]

    run(main())
