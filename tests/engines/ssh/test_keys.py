from __future__ import annotations

import subprocess

import pytest

from engines.ssh import keys
from engines.ssh.keys import KeyProblem

OPENSSH = "OPENSSH PRIVATE KEY"


@pytest.fixture
def made_by_ssh_keygen(tmp_path):
    def make(*options: str) -> tuple[str, str]:
        path = tmp_path / "key"
        subprocess.run(["ssh-keygen", "-q", "-f", str(path), "-C", "someone", *options], check=True)
        return path.read_text(), path.with_suffix(".pub").read_text()

    return make


@pytest.mark.parametrize(
    "options",
    [
        ("-t", "ed25519", "-N", ""),
        ("-t", "ed25519", "-N", "phrase"),
        ("-t", "rsa", "-b", "2048", "-N", ""),
        ("-t", "rsa", "-b", "2048", "-N", "phrase"),
        ("-t", "rsa", "-b", "2048", "-N", "phrase", "-m", "PEM"),
        ("-t", "rsa", "-b", "2048", "-N", "", "-m", "PKCS8"),
        ("-t", "ecdsa", "-b", "521", "-N", "phrase"),
        ("-t", "ecdsa", "-N", "phrase", "-m", "PEM"),
    ],
    ids=" ".join,
)
def test_it_finds_the_public_line_of_keys_made_by_ssh_keygen(made_by_ssh_keygen, options):
    private, public = made_by_ssh_keygen(*options)
    phrase = options[options.index("-N") + 1]
    assert keys.public_line(private, phrase).split()[:2] == public.split()[:2]
    if phrase:
        for wrong, code in (("other", "passphrase_wrong"), ("", "passphrase_missing")):
            with pytest.raises(KeyProblem) as caught:
                keys.read_private_key(private, wrong)
            assert (caught.value.code, caught.value.field) == (code, "passphrase")


def test_a_passphrase_for_a_key_without_one_does_no_harm(made_by_ssh_keygen):
    private, public = made_by_ssh_keygen("-t", "ed25519", "-N", "")
    assert keys.public_line(private, "needless").split()[:2] == public.split()[:2]


def test_a_generated_pair_belongs_together_and_is_read_by_ssh_keygen(tmp_path):
    pair = keys.generate("kvadmin on gpu 1")
    path = tmp_path / "key"
    path.write_text(pair.private)
    path.chmod(0o600)
    read = subprocess.run(["ssh-keygen", "-y", "-f", str(path)], capture_output=True, text=True, check=True)
    assert read.stdout.split()[:2] == pair.public.split()[:2]
    assert pair.public.split()[2] == "kvadmin-on-gpu-1"
    assert keys.public_line(pair.private).split()[:2] == pair.public.split()[:2]


def test_fingerprints_are_those_of_ssh_keygen(tmp_path):
    public = keys.generate().public
    (tmp_path / "k.pub").write_text(public)
    shown = subprocess.run(
        ["ssh-keygen", "-l", "-f", str(tmp_path / "k.pub")], capture_output=True, text=True, check=True
    )
    assert keys.fingerprint(public) == shown.stdout.split()[1]
    assert keys.key_type(public) == "ED25519"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda text: text.replace("\n", "\r\n"), "Windows line ends"),
        (lambda text: f'"{text.strip()}"', "quotes"),
        (lambda text: "\n\n  " + text.replace("\n", "\n   "), "indented"),
        (lambda text: text.replace("\n", "\\n"), "escaped line ends"),
        (lambda text: text.strip(), "no final newline"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_copying_adds_does_no_harm(change, why):
    pair = keys.generate()
    assert keys.public_line(change(pair.private)).split()[1] == pair.public.split()[1]


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("", "key_missing", "Paste a private key"),
        ("ssh-ed25519 AAAAC3Nza me@home", "public_key_pasted", "public key"),
        ("hello", "not_a_private_key", "not a private key"),
        ("PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none", "key_format", "PuTTY"),
        ("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "key_format", "certificate"),
        (
            "-----BEGIN DSA PRIVATE KEY-----\nMIIB\n-----END DSA PRIVATE KEY-----",
            "key_unsupported",
            "not supported",
        ),
        (
            f"-----BEGIN {OPENSSH}-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU=\n-----END {OPENSSH}-----",
            "key_damaged",
            "damaged",
        ),
    ],
)
def test_mistakes_get_a_sentence(text, code, says):
    with pytest.raises(KeyProblem, match=says) as caught:
        keys.read_private_key(text)
    assert (caught.value.code, caught.value.field) == (code, "private_key")


def test_a_key_pasted_in_part_is_damaged():
    with pytest.raises(KeyProblem) as caught:
        keys.read_private_key("\n".join(keys.generate().private.splitlines()[:3]))
    assert caught.value.code == "key_damaged"


def test_a_weak_rsa_key_is_refused(made_by_ssh_keygen):
    private, _public = made_by_ssh_keygen("-t", "rsa", "-b", "1024", "-N", "")
    with pytest.raises(KeyProblem, match="1024 bits"):
        keys.read_private_key(private)


def test_something_else_has_no_fingerprint():
    with pytest.raises(KeyProblem):
        keys.fingerprint("not a key")
