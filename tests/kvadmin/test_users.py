"""Users: what administrators do with accounts, and that nobody else can."""

from __future__ import annotations

import re

import pytest
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.urls import reverse

from kvadmin.actions import Actor, Conflict, Denied, Invalid
from kvadmin.actions.change_profile import ChangeProfile
from kvadmin.actions.change_user import ChangeUser
from kvadmin.actions.create_user import CreateUser
from kvadmin.actions.reset_factors import ResetFactors
from kvadmin.actions.reset_password import ResetPassword
from kvadmin.models import AuditEvent, User
from tests.support.people import make_person

pytestmark = pytest.mark.django_db

PAGES = [
    "kvadmin:user_list",
    "kvadmin:user_add",
    "kvadmin:oidc",
    "kvadmin:audit_list",
    "kvadmin:audit_export",
]
POSTS = [
    "kvadmin:user_activate",
    "kvadmin:user_deactivate",
    "kvadmin:user_lift_lock",
    "kvadmin:user_reset_factors",
    "kvadmin:user_reset_password",
    "kvadmin:user_detail",
]


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_for_administrators(client, administrator, operator, viewer, outsider, name):
    assert client.get(reverse(name)).url.startswith("/account/login/")
    for person in (operator, viewer, outsider):
        client.force_login(person)
        assert client.get(reverse(name)).status_code == 403
    client.force_login(administrator)
    assert client.get(reverse(name)).status_code == 200


@pytest.mark.parametrize("name", POSTS)
def test_changes_are_for_administrators(client, administrator, operator, viewer, outsider, name):
    url = reverse(name, args=[administrator.pk])
    assert client.post(url).url.startswith("/account/login/")
    for person in (operator, viewer, outsider):
        client.force_login(person)
        response = client.post(url, {"role": "viewer"})
        assert response.status_code == 403
    administrator.refresh_from_db()
    assert administrator.is_active
    assert administrator.role == "administrator"
    assert administrator.check_password("correct horse battery")


def test_the_403_page_says_which_role_is_needed(client, operator):
    client.force_login(operator)
    html = client.get(reverse("kvadmin:user_list")).content.decode()
    assert "Your role is Operator; this page needs Administrator." in html


def test_a_new_user_gets_a_password_that_is_shown_once(client, administrator):
    client.force_login(administrator)
    response = client.post(
        reverse("kvadmin:user_add"), {"username": "nina", "role": "operator", "name": "Nina", "email": ""}
    )
    assert response["Cache-Control"] == "no-store"
    password = re.search(r'id="password">([^<]+)<', response.content.decode()).group(1)
    nina = User.objects.get(username="nina")
    assert nina.check_password(password)
    assert nina.must_change_password
    assert password not in client.get(nina.get_absolute_url()).content.decode()
    event = AuditEvent.objects.get(verb="user.create")
    assert event.after == {"username": "nina", "role": "operator", "email": ""}
    assert password not in str(AuditEvent.objects.values())


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"username": "ADA", "role": "viewer"}, "Another user has this name."),
        ({"username": "no blanks", "role": "viewer"}, "Use letters, digits"),
        ({"username": "nina", "role": "viewer", "email": "nina"}, "This is not an email address."),
        ({"username": "nina", "role": "viewer", "email": "ADA@example.com"}, "Another user has this email"),
    ],
)
def test_a_mistake_keeps_what_was_typed(client, administrator, data, sentence):
    User.objects.filter(pk=administrator.pk).update(email="ada@example.com")
    client.force_login(administrator)
    html = client.post(reverse("kvadmin:user_add"), {**data, "name": "Somebody Typed"}).content.decode()
    assert sentence in html
    assert "Somebody Typed" in html
    assert User.objects.count() == 1


def test_changing_a_role_is_audited_with_before_and_after(administrator, viewer):
    ChangeUser(Actor(user=administrator, source="web"), user=viewer, role="operator").run()
    event = AuditEvent.objects.get(verb="user.change")
    assert (event.before, event.after) == ({"role": "viewer"}, {"role": "operator"})
    assert event.subject_name == "vera"


def test_an_unknown_role_is_refused(administrator, viewer):
    with pytest.raises(Invalid):
        ChangeUser(Actor(user=administrator), user=viewer, role="root").run()


def test_the_last_administrator_stays(administrator):
    with pytest.raises(Conflict) as refused:
        ChangeUser(Actor(user=administrator), user=administrator, role="viewer").run()
    assert refused.value.code == "last_administrator"
    inactive = make_person("idle", "administrator")
    inactive.is_active = False
    inactive.save()
    with pytest.raises(Conflict):
        ChangeUser(Actor(), user=administrator, is_active=False).run()
    administrator.refresh_from_db()
    assert administrator.role == "administrator"
    assert administrator.is_active


def test_with_a_second_administrator_the_first_may_go(administrator):
    other = make_person("adam", "administrator")
    ChangeUser(Actor(user=other), user=administrator, is_active=False).run()
    administrator.refresh_from_db()
    assert not administrator.is_active


def test_nobody_deactivates_themselves(administrator):
    make_person("adam", "administrator")
    with pytest.raises(Conflict) as refused:
        ChangeUser(Actor(user=administrator), user=administrator, is_active=False).run()
    assert refused.value.code == "own_account"


def test_a_deactivated_person_is_out_at_once(client, administrator, viewer):
    client.force_login(viewer)
    assert client.get("/account/").status_code == 200
    ChangeUser(Actor(user=administrator), user=viewer, is_active=False).run()
    assert client.get("/account/").status_code == 302


def test_resetting_a_password_ends_sessions_and_asks_for_a_new_one(client, administrator, viewer):
    client.force_login(viewer)
    password = ResetPassword(Actor(user=administrator), user=viewer).run()
    assert client.get("/account/").status_code == 302
    viewer.refresh_from_db()
    assert viewer.check_password(password)
    assert viewer.must_change_password
    assert password not in str(AuditEvent.objects.values())


def test_resetting_factors_removes_them(client, administrator, viewer):
    TOTP.activate(viewer, generate_totp_secret())
    client.force_login(administrator)
    assert "Reset second factor" in client.get(viewer.get_absolute_url()).content.decode()
    client.post(reverse("kvadmin:user_reset_factors", args=[viewer.pk]))
    assert not viewer.authenticator_set.exists()
    assert AuditEvent.objects.get(verb="user.reset_factors").before == {"totp": 1}
    with pytest.raises(Conflict):
        ResetFactors(Actor(user=administrator), user=viewer).run()


def test_actions_refuse_other_roles(operator, viewer):
    for action in (
        CreateUser(Actor(user=operator), username="x"),
        ChangeUser(Actor(user=operator), user=viewer, role="administrator"),
        ResetPassword(Actor(user=operator), user=viewer),
    ):
        with pytest.raises(Denied):
            action.run()


def test_the_list_is_found_by_name_and_role(client, administrator, viewer):
    client.force_login(administrator)
    url = reverse("kvadmin:user_list")
    assert [p.username for p in client.get(url, {"q": "ver"}).context["page"].rows] == ["vera"]
    rows = client.get(url, {"role": "administrator"}).context["page"].rows
    assert [p.username for p in rows] == ["ada"]


def test_one_changes_one_s_own_profile(client, viewer):
    client.force_login(viewer)
    response = client.post("/account/", {"name": "Vera Blum", "language": "zh-hans", "theme": "dark"})
    assert response.url == "/account/"
    viewer.refresh_from_db()
    assert (viewer.get_full_name(), viewer.language, viewer.theme) == ("Vera Blum", "zh-hans", "dark")
    assert 'lang="zh-hans"' in client.get("/account/").content.decode()
    assert AuditEvent.objects.get(verb="account.change").after["theme"] == "dark"


def test_nobody_changes_another_s_profile(administrator, viewer):
    action = ChangeProfile(Actor(user=administrator), user=viewer, name="", language="", theme="dark")
    with pytest.raises(Denied):
        action.run()
