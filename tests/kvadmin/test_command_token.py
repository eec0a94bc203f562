"""manage.py token: only the token on standard output, refusals in words."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from kvadmin.models import AuditEvent, ManagementToken
from tests.support.api import Api


def run(*args):
    out, err = StringIO(), StringIO()
    call_command("token", *args, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_it_prints_a_token_that_works_and_nothing_else(operator):
    out, err = run("issue", "--user", "olga", "--scope", "write", "--name", "ci", "--days", "30")
    secret = out.removesuffix("\n")
    assert "\n" not in secret
    assert Api().get("system/version/", Authorization=f"Bearer {secret}").json()["scope"] == "write"
    assert secret not in err
    token = ManagementToken.objects.get()
    assert (token.name, token.expires_at is None) == ("ci", False)


def test_the_secret_is_stored_nowhere(operator):
    secret = run("issue", "--user", "olga")[0].strip().rpartition("_")[2]
    row = ManagementToken.objects.get()
    assert secret not in str(vars(row))
    event = AuditEvent.objects.get(verb="token.issue")
    assert event.source == "command"
    assert secret not in str(vars(event))


def test_it_reads_only_unless_asked(operator):
    run("issue", "--user", "olga")
    assert ManagementToken.objects.get().scope == "read"


def test_it_lists_without_secrets(operator):
    secret = run("issue", "--user", "olga", "--name", "ci")[0].strip()
    out, _err = run("list", "--user", "olga")
    assert "ci" in out
    assert "usable" in out
    assert secret.rpartition("_")[2] not in out


def test_it_revokes(operator):
    run("issue", "--user", "olga")
    token = ManagementToken.objects.get()
    run("revoke", token.public_id)
    token.refresh_from_db()
    assert token.revoked_at is not None
    assert "revoked" in run("list")[0]
    with pytest.raises(CommandError, match="before"):
        run("revoke", f"kvm_{token.public_id}")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["issue", "--user", "nobody"], "olga"),
        (["issue", "--user", "olga", "--days", "0"], "--days"),
        (["issue", "--user", "olga", "--name", " "], "name"),
        (["revoke", "0123456789abcdef"], "no such token"),
        (["revoke", "kvm_"], "no such token"),
    ],
)
def test_it_refuses_in_words(operator, args, said):
    with pytest.raises(CommandError, match=said):
        run(*args)
    assert not ManagementToken.objects.exists()
