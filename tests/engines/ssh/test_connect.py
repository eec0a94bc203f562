"""Signing in, host keys and jump hosts against a real server."""

from __future__ import annotations

import socket
import threading

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from engines.ssh import keys, pool, transport
from engines.ssh.errors import (
    HostError,
    HostKeyChanged,
    HostKeyUnknown,
    HostKeyUnusable,
    HostUnreachable,
    SignInRefused,
)
from engines.ssh.session import session_for
from engines.ssh.transport import Login, connect, scan_host_key
from tests.support.sshd import PASSWORD, ROOT, free_port

pytestmark = pytest.mark.django_db


def openssh(key, passphrase: bytes = b"") -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption(),
    ).decode()


def pem(key) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    ).decode()


def works(host) -> bool:
    return session_for(host).run("echo works").stdout == "works\n"


def test_it_signs_in_by_key(sshd):
    assert works(sshd.host())


KEYS = {
    "rsa": lambda: pem(rsa.generate_private_key(public_exponent=65537, key_size=2048)),
    "ecdsa": lambda: openssh(ec.generate_private_key(ec.SECP256R1())),
    "ecdsa-384-pem": lambda: pem(ec.generate_private_key(ec.SECP384R1())),
    "ed25519-crlf": lambda: keys.generate().private.replace("\n", "\r\n"),
}


@pytest.mark.parametrize("kind", KEYS)
def test_it_signs_in_by_keys_of_every_supported_type(sshd, kind):
    private = KEYS[kind]()
    authorized = sshd.users.folder / "authorized_keys"
    before = authorized.read_text()
    authorized.write_text(before + keys.public_line(private) + "\n")
    try:
        assert works(sshd.host(private_key=private))
    finally:
        authorized.write_text(before)


def test_it_signs_in_by_a_key_with_a_passphrase(sshd):
    key = keys.read_private_key(sshd.users.pair.private)
    assert works(sshd.host(private_key=openssh(key, b"open sesame"), passphrase="open sesame"))


def test_a_wrong_passphrase_says_so(sshd):
    key = keys.read_private_key(sshd.users.pair.private)
    host = sshd.host(private_key=openssh(key, b"open sesame"), passphrase="wrong")
    with pytest.raises(HostKeyUnusable, match="passphrase does not open"):
        session_for(host)


def test_a_wrong_key_is_refused_with_what_to_do(sshd):
    with pytest.raises(SignInRefused, match="refused the key of user") as caught:
        session_for(sshd.host(private_key=keys.generate().private))
    assert "authorized_keys" in caught.value.remedy


def test_an_unknown_user_is_refused(sshd):
    with pytest.raises(SignInRefused, match="user nobody-here"):
        session_for(sshd.host(username="nobody-here"))


# a server reads password hashes as root only
if ROOT:

    def test_it_signs_in_by_password(sshd):
        assert works(sshd.host(auth="password", password=PASSWORD))

    def test_a_wrong_password_is_refused_without_showing_it(sshd):
        with pytest.raises(SignInRefused, match="refused the password of user") as caught:
            session_for(sshd.host(auth="password", password="hunter22-hunter22"))
        assert "hunter22" not in f"{caught.value.message} {caught.value.remedy} {caught.value!r}"

    def test_it_answers_keyboard_interactive_prompts(start_sshd):
        server = start_sshd("UsePAM yes", "PasswordAuthentication no", "KbdInteractiveAuthentication yes")
        assert works(server.host(auth="password", password=PASSWORD))

    @pytest.mark.parametrize("order", ["publickey,password", "password,publickey"])
    def test_it_gives_key_and_password_where_both_are_wanted(start_sshd, order):
        server = start_sshd(f"AuthenticationMethods {order}")
        assert works(server.host(auth="both", password=PASSWORD))
        with pytest.raises(SignInRefused, match="refused the password of user"):
            session_for(server.host(auth="both", password="another"))

    def test_it_answers_prompts_after_the_key(start_sshd):
        server = start_sshd(
            "UsePAM yes",
            "KbdInteractiveAuthentication yes",
            "AuthenticationMethods publickey,keyboard-interactive",
        )
        assert works(server.host(auth="both", password=PASSWORD))

    def test_both_sign_in_where_one_is_enough(sshd):
        assert works(sshd.host(auth="both", password=PASSWORD))

    @pytest.mark.parametrize(
        ("order", "auth", "says"),
        [
            ("publickey,password", "key", "accepts the key of user .* asks for more: password"),
            ("password,publickey", "password", "accepts the password of user .* asks for more: publickey"),
        ],
    )
    def test_a_server_that_wants_more_is_said_so(start_sshd, order, auth, says):
        server = start_sshd(f"AuthenticationMethods {order}")
        with pytest.raises(SignInRefused, match=says) as refused:
            session_for(server.host(auth=auth, password=PASSWORD if auth == "password" else ""))
        assert "Private key and password" in refused.value.remedy


def test_a_server_without_passwords_names_what_it_accepts(start_sshd):
    server = start_sshd("PasswordAuthentication no", "KbdInteractiveAuthentication no")
    with pytest.raises(SignInRefused, match="It accepts: publickey"):
        session_for(server.host(auth="password", password="whatever it is"))


def test_an_unknown_host_key_is_shown_before_anything_secret_is_sent(sshd, monkeypatch):
    tried = []
    monkeypatch.setattr(transport, "_sign_in", lambda *args: tried.append(args))
    with pytest.raises(HostKeyUnknown) as caught:
        session_for(sshd.host(host_key=""))
    assert caught.value.offered == sshd.host_key
    assert keys.fingerprint(sshd.host_key) in caught.value.message
    assert tried == []


def test_a_changed_host_key_shows_both_fingerprints_before_anything_secret_is_sent(sshd, monkeypatch):
    old = sshd.host_key
    host = sshd.host()
    sshd.swap_host_key()
    tried = []
    monkeypatch.setattr(transport, "_sign_in", lambda *args: tried.append(args))
    with pytest.raises(HostKeyChanged) as caught:
        session_for(host)
    assert (caught.value.pinned, caught.value.offered) == (old, sshd.host_key)
    assert keys.fingerprint(old) in caught.value.message
    assert keys.fingerprint(sshd.host_key) in caught.value.message
    assert tried == []


def test_another_type_of_host_key_is_a_change_too(sshd):
    host = sshd.host()
    sshd.swap_host_key("rsa")
    with pytest.raises(HostKeyChanged):
        session_for(host)


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_the_pinned_keys_type_is_asked_for_first(start_sshd, kind):
    folder = None
    server = start_sshd(host_key=kind)
    folder = server.folder
    pinned = server.host_key
    others = {"rsa", "ecdsa", "ed25519"} - {kind}
    for other in others:
        import subprocess

        subprocess.run(
            ["ssh-keygen", "-q", "-t", other, "-N", "", "-f", str(folder / f"key_{other}")], check=True
        )
        server.options.append(f"HostKey {folder / f'key_{other}'}")
    server.restart()
    assert works(server.host(host_key=pinned))


def test_it_scans_a_host_key_without_signing_in(sshd):
    assert scan_host_key("127.0.0.1", sshd.port) == sshd.host_key


def test_it_goes_through_jump_hosts_each_with_its_own_key(sshd, start_sshd):
    inner = start_sshd()
    middle = start_sshd()
    assert len({sshd.host_key, inner.host_key, middle.host_key}) == 3
    outer_row = sshd.host(name="outer")
    middle_row = middle.host(name="middle", jump=outer_row)
    inner_row = inner.host(name="inner", jump=middle_row)
    session = session_for(inner_row)
    result = session.run("echo $SSH_CONNECTION", timeout_s=20)
    assert result.stdout.split()[-1] == str(inner.port)
    assert len(sshd.connections()) >= 1
    assert scan_host_key("127.0.0.1", inner.port, pool.login_for(middle_row)) == inner.host_key


def test_a_jump_hosts_changed_key_stops_everything(sshd, start_sshd):
    inner = start_sshd()
    row = inner.host(jump=sshd.host(name="outer"))
    sshd.swap_host_key()
    with pytest.raises(HostKeyChanged, match="outer"):
        session_for(row)


def test_an_address_the_jump_host_cannot_reach_names_the_jump_host(sshd):
    row = sshd.host(name="inner", port=free_port(), jump=sshd.host(name="outer"))
    with pytest.raises(HostUnreachable, match="jump host outer cannot reach"):
        session_for(row)


def test_a_jump_host_that_is_cut_makes_the_inner_host_unreachable(sshd, start_sshd):
    inner = start_sshd()
    session = session_for(inner.host(jump=sshd.host(name="outer")))
    threading.Timer(0.5, sshd.cut).start()
    with pytest.raises(HostUnreachable):
        session.run("sleep 30", timeout_s=40)
    assert session.run("echo again").stdout == "again\n"


def test_jump_hosts_in_a_circle_are_refused(sshd):
    one = sshd.host(name="one")
    two = sshd.host(name="two", jump=one)
    one.jump = two
    one.save()
    with pytest.raises(HostError, match="one → two → one"):
        session_for(one)


def test_a_closed_port_says_so(db):
    with pytest.raises(HostUnreachable, match="refuses connections on port"):
        connect(Login("h", "127.0.0.1", free_port(), "x"))


def test_an_unknown_name_says_so(db):
    with pytest.raises(HostUnreachable, match=r"name no-such-host\.invalid is not known"):
        connect(Login("h", "no-such-host.invalid", 22, "x"))


def test_something_else_than_ssh_says_so(monkeypatch):
    monkeypatch.setattr(transport, "_BUSY_WAITS", (0.01,))
    server = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        for _ in range(2):
            client, _address = server.accept()
            client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 200)
            client.close()

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(HostUnreachable, match="No SSH server answered"):
        connect(Login("h", "127.0.0.1", server.getsockname()[1], "x"))
    thread.join(10)
    server.close()


def test_a_connection_is_kept_and_taken_again(sshd):
    host = sshd.host()
    assert works(host)
    before = sshd.connections()
    assert works(host)
    assert sshd.connections() == before


def test_changed_credentials_do_not_use_the_old_connection(sshd):
    host = sshd.host()
    assert works(host)
    host.private_key = keys.generate().private
    with pytest.raises(SignInRefused):
        session_for(host)


def test_an_idle_connection_is_closed(sshd, monkeypatch):
    monkeypatch.setattr(pool, "IDLE_S", 0.2)
    monkeypatch.setattr(pool, "_SWEEP_S", 0.2)
    kept = pool.Pool()
    connection = kept.connection(sshd.login())
    ended = threading.Event()

    def wait() -> None:
        while connection.alive:
            ended.wait(0.05)
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    assert ended.wait(20)


def test_no_key_or_agent_of_kvadmins_own_user_is_tried(sshd, monkeypatch, tmp_path):
    (tmp_path / ".ssh").mkdir(mode=0o700)
    (tmp_path / ".ssh" / "id_ed25519").write_text(sshd.users.pair.private)
    (tmp_path / ".ssh" / "id_ed25519").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(SignInRefused):
        session_for(sshd.host(private_key=""))


def test_a_login_does_not_show_its_secrets(sshd):
    login = sshd.login(password="very secret")
    assert "very secret" not in repr(login)
    assert "PRIVATE" not in repr(login)
