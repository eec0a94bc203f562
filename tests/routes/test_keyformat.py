"""A gateway key's text and what is kept of it."""

import hashlib
import hmac

from routes import keyformat


def test_a_new_key_carries_its_public_id_and_no_two_are_alike():
    made = [keyformat.new_key() for _ in range(200)]
    assert all(keyformat.public_id(text) == public for public, text in made)
    assert len({text for _public, text in made}) == len({public for public, _text in made}) == 200


def test_a_text_of_another_form_has_no_public_id():
    public, text = keyformat.new_key()
    for other in ["", "sk-kv-", public, text[:-1], text + "x", text.replace("sk-kv-", "sk-ab-"),
                  text[:-1] + "-", text[:-1] + "_", text[:-1] + " ", text[:-1] + "é"]:  # fmt: skip
        assert keyformat.public_id(other) is None, other


def test_the_digest_is_an_hmac_under_the_pepper():
    _public, text = keyformat.new_key()
    assert keyformat.digest(text, "pepper") == hmac.new(b"pepper", text.encode(), hashlib.sha256).digest()
    assert keyformat.digest(text, "pepper") != keyformat.digest(text, "another")
    assert len(keyformat.digest("any \udcff text", "pepper")) == 32
