"""SSH keys: making a pair, reading a pasted one, public lines and fingerprints."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from kvadmin.sentences import gettext as _

PrivateKey = ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

_PUBLIC_LINE = re.compile(
    r"^(?:ssh-(?:ed25519|rsa|dss)|ecdsa-sha2-nistp\d+|sk-\S+@openssh\.com) [A-Za-z0-9+/=]+"
)
_SMALLEST_RSA = 2048


class KeyProblem(ValueError):
    """A key cannot be used; ``field`` is "private_key" or "passphrase", ``code`` is stable."""

    def __init__(self, message: str, *, code: str, field: str = "private_key", remedy: str = ""):
        super().__init__(message)
        self.message = message
        self.code = code
        self.field = field
        self.remedy = remedy


@dataclass(frozen=True)
class KeyPair:
    """``private`` is OpenSSH's own text form, without a passphrase; ``public`` one authorized_keys line."""

    private: str
    public: str


def generate(comment: str = "kvadmin") -> KeyPair:
    """A new ed25519 key pair."""
    key = ed25519.Ed25519PrivateKey.generate()
    return KeyPair(private=private_text(key), public=f"{_public_text(key)} {_clean(comment)}")


def read_private_key(text: str, passphrase: str = "") -> PrivateKey:
    """The key in a pasted or uploaded text (OpenSSH or PEM); raises KeyProblem with a sentence."""
    text = tidy(text)
    _refuse_other_things(text)
    secret = passphrase.encode() or None
    load = (
        serialization.load_ssh_private_key
        if "BEGIN OPENSSH PRIVATE KEY" in text
        else serialization.load_pem_private_key
    )
    try:
        key = load(text.encode(), password=secret)
    except TypeError as error:
        if secret is None:
            raise KeyProblem(
                _("This private key is protected by a passphrase."),
                code="passphrase_missing",
                field="passphrase",
                remedy=_("Enter its passphrase too."),
            ) from error
        # a passphrase for a key that has none does no harm
        return read_private_key(text)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _unreadable(text, encrypted=secret is not None) from error
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size < _SMALLEST_RSA:
        raise KeyProblem(
            _("This RSA key has %(bits)d bits; at least 2048 are needed.") % {"bits": key.key_size},
            code="key_too_short",
            remedy=_("Use an ed25519 key instead, for example one generated here."),
        )
    if not isinstance(key, PrivateKey):
        raise _unsupported()
    return key


def _unreadable(text: str, *, encrypted: bool) -> KeyProblem:
    if encrypted and (_is_encrypted(text)):
        return KeyProblem(
            _("The passphrase does not open this private key."),
            code="passphrase_wrong",
            field="passphrase",
            remedy=_("Enter the passphrase that was set when the key was made."),
        )
    if not encrypted and _is_encrypted(text):
        return KeyProblem(
            _("This private key is protected by a passphrase."),
            code="passphrase_missing",
            field="passphrase",
            remedy=_("Enter its passphrase too."),
        )
    return KeyProblem(
        _("This private key cannot be read: it is damaged, or only a part of it was pasted."),
        code="key_damaged",
        remedy=_("Copy the whole file, from the line that begins with -----BEGIN to the one with -----END."),
    )


def tidy(text: str) -> str:
    """The key's text as its tool wrote it: line ends, blanks and quotes picked up by copying are gone."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").strip().strip("\"'").strip()
    if "\\n" in text and "\n" not in text:
        text = text.replace("\\n", "\n")
    return "\n".join(line.strip() for line in text.split("\n")) + "\n"


def private_text(key: PrivateKey) -> str:
    """OpenSSH's text form without a passphrase."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    ).decode()


def public_line(text: str, passphrase: str = "", comment: str = "kvadmin") -> str:
    """The authorized_keys line that belongs to a private key; raises KeyProblem."""
    return f"{_public_text(read_private_key(text, passphrase))} {_clean(comment)}"


def fingerprint(line: str) -> str:
    """ "SHA256:…" of a public or host key line ("type base64 …"), as ssh and ssh-keygen print it."""
    try:
        blob = base64.b64decode(line.split()[1], validate=True)
    except (IndexError, binascii.Error, ValueError) as error:
        raise KeyProblem(_("This is not a public key."), code="not_a_public_key") from error
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def key_type(line: str) -> str:
    """The type of a host key in words ("ED25519", "ECDSA", "RSA"), as ssh shows it."""
    name = line.split(" ", 1)[0]
    return {"ssh-ed25519": "ED25519", "ssh-rsa": "RSA"}.get(name, "ECDSA" if "ecdsa" in name else name)


def _public_text(key: PrivateKey) -> str:
    return (
        key.public_key()
        .public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        .decode()
    )


def _clean(comment: str) -> str:
    return re.sub(r"[^A-Za-z0-9@._-]+", "-", comment).strip("-") or "kvadmin"


def _is_encrypted(text: str) -> bool:
    if "ENCRYPTED" in text:
        return True
    if "BEGIN OPENSSH PRIVATE KEY" not in text:
        return False
    body = "".join(line for line in text.splitlines() if line and not line.startswith("-----"))
    try:
        head = base64.b64decode(body[: len(body) // 4 * 4])[:60]
    except (binascii.Error, ValueError):
        return False
    return head.startswith(b"openssh-key-v1\0") and b"none" not in head[:24]


def _refuse_other_things(text: str) -> None:
    """KeyProblem for what people paste by mistake."""
    if not text.strip():
        raise KeyProblem(_("Paste a private key."), code="key_missing")
    if _PUBLIC_LINE.match(text) or "BEGIN SSH2 PUBLIC KEY" in text or "BEGIN PUBLIC KEY" in text:
        raise KeyProblem(
            _("This is the public key; kvadmin signs in with the private one."),
            code="public_key_pasted",
            remedy=_("Paste the file without .pub, the one that begins with -----BEGIN."),
        )
    if text.startswith("PuTTY-User-Key-File"):
        raise KeyProblem(
            _("This is a key in PuTTY's own format, which cannot be read here."),
            code="key_format",
            remedy=_("In PuTTYgen choose Conversions, Export OpenSSH key, and paste that file."),
        )
    if "BEGIN CERTIFICATE" in text:
        raise KeyProblem(_("This is a certificate, not a private key."), code="key_format")
    if "BEGIN DSA PRIVATE KEY" in text:
        raise _unsupported()
    if "-----BEGIN" not in text or "PRIVATE KEY-----" not in text:
        raise KeyProblem(
            _("This is not a private key."),
            code="not_a_private_key",
            remedy=_("A private key begins with a line like -----BEGIN OPENSSH PRIVATE KEY-----."),
        )


def _unsupported() -> KeyProblem:
    return KeyProblem(
        _("Keys of this type are not supported: use ed25519, ECDSA or RSA."),
        code="key_unsupported",
        remedy=_("Generate a new key here, or with ssh-keygen -t ed25519."),
    )
