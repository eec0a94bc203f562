"""Pages of teams, businesses and keys, as each kind of person."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.conf import settings
from django.urls import reverse
from django.utils import timezone

from kvadmin.models import Team
from routes import keyformat
from routes.choices import KeyState
from routes.models import Business, Key
from tests.support.route_factories import BusinessFactory, KeyFactory, RouteFactory

pytestmark = pytest.mark.django_db

STRONG = "cPq7Lm2ZxT9vWb4KdR8nYs3H"
PEOPLE = ["administrator", "operator", "viewer", "team_owner", "team_member", "outsider"]
#: who is shown a team's pages
SEES = {"administrator", "operator", "team_owner", "team_member"}
#: who may change what the team owns
OWNS = {"administrator", "team_owner"}


@pytest.fixture
def business(team):
    return BusinessFactory(team=team, name="shop")


@pytest.fixture
def key(business):
    return KeyFactory(business=business, name="production")


def sign_in(client, request, person):
    user = request.getfixturevalue(person)
    client.force_login(user)
    return user


def text_of(response) -> str:
    return response.content.decode()


@pytest.mark.parametrize("person", PEOPLE)
def test_who_sees_the_pages_of_a_team(person, key, client, request):
    sign_in(client, request, person)
    for url in (
        reverse("routes:team_detail", args=[key.business.team_id]),
        reverse("routes:key_detail", args=[key.pk]),
    ):
        assert client.get(url).status_code == (200 if person in SEES else 404), url
    for url in ("/teams/", "/keys/", "/models/"):
        response = client.get(url)
        assert response.status_code == 200
        if url == "/keys/":
            assert ("production" in text_of(response)) is (person in SEES)


@pytest.mark.parametrize("person", PEOPLE)
def test_who_is_offered_a_change(person, key, client, request):
    sign_in(client, request, person)
    for url in (
        reverse("routes:key_edit", args=[key.pk]),
        reverse("routes:business_edit", args=[key.business_id]),
        reverse("routes:business_add", args=[key.business.team_id]),
    ):
        expected = 200 if person in OWNS else 403 if person in SEES else 404
        assert client.get(url).status_code == expected, url
    if person in SEES:
        page = text_of(client.get(reverse("routes:key_detail", args=[key.pk])))
        assert (reverse("routes:key_revoke", args=[key.pk]) in page) is (person in OWNS)
        page = text_of(client.get(reverse("routes:team_detail", args=[key.business.team_id])))
        assert (reverse("routes:team_people", args=[key.business.team_id]) in page) is (person in OWNS)
    assert client.get("/keys/add/").status_code == (200 if person in OWNS else 403)


@pytest.mark.parametrize("person", sorted(set(PEOPLE) - OWNS))
def test_nobody_else_changes_anything_by_a_post(person, key, client, request):
    sign_in(client, request, person)
    team = key.business.team
    for name, args, data in (
        ("key_disable", [key.pk], {}),
        ("key_revoke", [key.pk], {}),
        ("key_rotate", [key.pk], {"overlap": 1}),
        ("key_overlap", [key.pk], {"works_until": "2099-01-01"}),
        ("key_edit", [key.pk], {"name": "mine", "all_models": "on"}),
        ("key_add", [], {"business": key.business_id, "name": "mine", "all_models": "on"}),
        ("business_add", [team.pk], {"name": "mine"}),
        ("business_edit", [key.business_id], {"name": "mine"}),
        ("business_remove", [key.business_id], {}),
        ("team_people", [team.pk], {"person": person, "role": "owner"}),
        ("team_rename", [team.pk], {"name": "mine"}),
        ("team_remove", [team.pk], {}),
        ("team_add", [], {"name": "mine", "owner": person}),
    ):
        assert client.post(reverse(f"routes:{name}", args=args), data).status_code in {302, 400, 403, 404}, (
            name
        )
    key.refresh_from_db()
    assert (key.name, key.state, Key.objects.count()) == ("production", KeyState.ACTIVE, 1)
    assert list(Business.objects.values_list("name", flat=True)) == ["shop"]
    assert list(Team.objects.values_list("name", flat=True)) == ["search"]
    assert not team.memberships.filter(user__username=person).exists()


def test_strangers_sign_in_first(key, client):
    for url in ("/teams/", "/keys/", "/models/", f"/keys/{key.pk}/", "/keys/add/", "/routes/"):
        assert client.get(url).url.startswith(reverse("account_login"))


def test_an_owner_issues_a_key_and_sees_its_secret_once(business, team_owner, client):
    RouteFactory(name="qwen3-8b-v1")
    client.force_login(team_owner)
    response = client.post(
        "/keys/add/",
        {
            "business": business.pk,
            "name": "production",
            "models": ["qwen3-8b-v1"],
            "addresses": "10.0.0.0/8\n\n192.0.2.7\n",
            "requests_per_minute": "60",
            "expires_on": (timezone.now() + timedelta(days=30)).date().isoformat(),
        },
    )
    assert response.status_code == 200
    assert response["Cache-Control"] == "no-store"
    secret = re.search(r'<code id="secret">([^<]+)</code>', text_of(response)).group(1)
    key = Key.objects.get()
    assert bytes(key.digest) == keyformat.digest(secret, settings.KVADMIN_PEPPER)
    assert (key.models, key.addresses, key.requests_per_minute) == (
        ["qwen3-8b-v1"], ["10.0.0.0/8", "192.0.2.7/32"], 60,
    )  # fmt: skip
    assert (key.expires_at.hour, key.expires_at.minute) == (23, 59)
    for text in (
        f"export OPENAI_API_KEY={secret}",
        f"OPENAI_API_KEY={secret}",
        f"ANTHROPIC_AUTH_TOKEN={secret}",
        "OPENAI_BASE_URL=http://testserver:8081/v1",
        "ANTHROPIC_BASE_URL=http://testserver:8081\n",
        "ANTHROPIC_MODEL=qwen3-8b-v1",
        "ChatOpenAI",
    ):
        assert text in text_of(response), text
    assert secret not in text_of(client.get(key.get_absolute_url()))
    assert secret not in text_of(client.get("/keys/"))


def test_the_gateways_address_is_as_it_is_set(business, team_owner, client, settings):
    settings.KVADMIN_GATEWAY_URL = "https://llm.example.org/v1/"
    client.force_login(team_owner)
    page = text_of(client.post("/keys/add/", {"business": business.pk, "name": "x", "all_models": "on"}))
    assert "OPENAI_BASE_URL=https://llm.example.org/v1\n" in page
    assert "ANTHROPIC_BASE_URL=https://llm.example.org\n" in page


def test_a_mistake_keeps_what_was_typed(business, team_owner, client):
    client.force_login(team_owner)
    response = client.post(
        "/keys/add/", {"business": business.pk, "name": "production", "addresses": "10.1.2.3/8"}
    )
    assert response.status_code == 400
    page = text_of(response)
    assert "10.1.2.3/8" in page and "10.0.0.0/8 is meant?" in page
    assert "Choose at least one model" in page
    assert 'value="production"' in page
    assert not Key.objects.exists()
    response = client.post(
        "/keys/add/", {"business": business.pk, "name": "x", "all_models": "on", "expires_on": "2020-01-01"}
    )
    assert "choose a time to come" in text_of(response)


def test_a_key_for_somebody_elses_business_is_no_choice(team_owner, team, client):
    BusinessFactory(team=team)
    other = BusinessFactory()
    client.force_login(team_owner)
    response = client.post("/keys/add/", {"business": other.pk, "name": "x", "all_models": "on"})
    assert response.status_code == 400
    assert not Key.objects.exists()


def test_a_change_keeps_the_end_to_the_second(key, team_owner, client):
    end = timezone.now() + timedelta(days=3)
    Key.objects.filter(pk=key.pk).update(expires_at=end, models=["gone-8b-v1"])
    client.force_login(team_owner)
    page = text_of(client.get(f"/keys/{key.pk}/edit/"))
    assert "gone-8b-v1 (no such route)" in page
    client.post(
        f"/keys/{key.pk}/edit/",
        {
            "name": "staging",
            "models": ["gone-8b-v1"],
            "expires_on": end.date().isoformat(),
            "concurrent": "4",
        },
    )
    key.refresh_from_db()
    assert (key.name, key.expires_at, key.models, key.concurrent) == ("staging", end, ["gone-8b-v1"], 4)
    assert "There is no route named “gone-8b-v1”" in text_of(client.get(f"/keys/{key.pk}/"))


def test_the_life_of_a_key_on_its_page(key, team_owner, client):
    client.force_login(team_owner)
    url = f"/keys/{key.pk}/"
    assert "is disabled" in text_of(client.post(f"{url}disable/", follow=True))
    assert "works again" in text_of(client.post(f"{url}enable/", follow=True))
    response = client.post(f"{url}rotate/", {"overlap": "24"})
    secret = re.search(r'<code id="secret">([^<]+)</code>', text_of(response)).group(1)
    successor = Key.objects.get(predecessor=key)
    assert keyformat.public_id(secret) == successor.public_id
    page = text_of(client.get(url))
    assert successor.masked in page and "Nobody has used the new one yet" in page
    client.post(f"{url}overlap/", {"works_until": "2099-12-31"})
    key.refresh_from_db()
    assert key.overlap_ends_at.year == 2099
    Key.objects.filter(pk=successor.pk).update(last_used_at=timezone.now())
    assert "Safe to remove" in text_of(client.get(url))
    assert "refuses it within a second" in text_of(client.post(f"{url}revoke/", follow=True))
    page = text_of(client.get(url))
    assert "Revoked" in page and reverse("routes:key_rotate", args=[key.pk]) not in page


def test_keys_that_expire_soon_are_pointed_out(key, team_owner, team_member, client):
    Key.objects.filter(pk=key.pk).update(expires_at=timezone.now() + timedelta(days=3))
    for person in (team_owner, team_member):
        client.force_login(person)
        assert "1 key expires within 14 days" in text_of(client.get("/keys/"))
        assert "production" in text_of(client.get("/keys/?show=soon"))
        assert "This key expires on" in text_of(client.get(f"/keys/{key.pk}/"))


def test_the_list_is_filtered(key, team_owner, client):
    ended = KeyFactory(business=key.business, name="former", revoked_at=timezone.now())
    client.force_login(team_owner)
    assert ended.masked not in text_of(client.get("/keys/"))
    assert ended.masked in text_of(client.get("/keys/?show=all"))
    assert key.masked in text_of(client.get(f"/keys/?q={key.masked}"))
    assert key.masked not in text_of(client.get("/keys/?q=nothing"))


def test_an_existing_secret_is_taken_over(business, team_owner, client):
    client.force_login(team_owner)
    form = {"business": business.pk, "name": "old gateway", "all_models": "on", "secret": STRONG}
    response = client.post("/keys/import/", {**form, "secret": "EMPTY"})
    assert response.status_code == 400
    assert "placeholder" in text_of(response) and "fewer than 20 characters" in text_of(response)
    response = client.post("/keys/import/", form, follow=True)
    assert STRONG not in text_of(response)
    assert f"…{STRONG[-4:]}" in text_of(response)


def test_an_owner_runs_the_team(team, team_owner, outsider, client):
    client.force_login(team_owner)
    url = team.get_absolute_url()
    page = text_of(client.post(f"{url}people/", {"person": "nobody", "role": "member"}))
    assert "There is no user “nobody”" in page
    client.post(f"{url}people/", {"person": "otto", "role": "member"})
    assert team.memberships.get(user=outsider).role == "member"
    client.post(f"{url}people/{outsider.pk}/", {"role": "owner"})
    client.post(f"{url}people/{team_owner.pk}/", {"role": "member"})
    assert not team_owner.may("team.change", team)
    client.force_login(outsider)
    page = text_of(client.post(f"{url}people/{outsider.pk}/", {"role": ""}, follow=True))
    assert "would have no owner" in page
    client.post(f"{url}businesses/add/", {"name": "support", "description": "Answers mail"})
    business = Business.objects.get()
    client.post(f"/businesses/{business.pk}/edit/", {"name": "support desk", "description": ""})
    assert "support desk" in text_of(client.get(url))
    client.post(f"/businesses/{business.pk}/remove/")
    assert not Business.objects.exists()
    client.post(f"{url}rename/", {"name": "shop search"})
    assert "shop search" in text_of(client.get("/teams/"))


def test_an_administrator_makes_a_team(administrator, outsider, client):
    client.force_login(administrator)
    assert client.post("/teams/add/", {"name": "search", "owner": "nobody"}).status_code == 400
    client.post("/teams/add/", {"name": "search", "owner": "otto"})
    team = Team.objects.get()
    assert outsider.may("key.change", team)
    client.post(f"/teams/{team.pk}/remove/")
    assert not Team.objects.exists()


def test_models_are_those_that_ones_keys_may_call(business, team_owner, outsider, viewer, client):
    mine = RouteFactory(name="qwen3-8b-v1", description="Quick answers")
    other = RouteFactory(name="qwen3-32b-v1")
    KeyFactory(business=business, name="production", models=["qwen3-8b-v1"])
    KeyFactory(business=business, name="revoked", revoked_at=timezone.now())
    client.force_login(team_owner)
    page = text_of(client.get("/models/"))
    assert "qwen3-8b-v1" in page and "Quick answers" in page and "production" in page
    assert "qwen3-32b-v1" not in page
    detail = text_of(client.get(f"/models/{mine.pk}/"))
    assert "model_not_allowed" in detail and "sk-kv-YOUR-KEY" in detail
    assert client.get(f"/models/{other.pk}/").status_code == 404
    client.force_login(outsider)
    assert "You are in no team" in text_of(client.get("/models/"))
    assert client.get(f"/models/{mine.pk}/").status_code == 404
    client.force_login(viewer)
    assert "none may call it" in text_of(client.get("/models/"))


def test_who_sees_no_engines_begins_at_the_models(team_member, viewer, client):
    client.force_login(team_member)
    assert client.get("/").url == "/models/"
    client.force_login(viewer)
    assert client.get("/").status_code == 200


def test_search_finds_what_one_may_see(key, team_member, outsider, client):
    route = RouteFactory(name="production-8b", aliases=["quick"])
    client.force_login(team_member)
    page = text_of(client.get("/search/?q=production"))
    assert key.get_absolute_url() in page and route.get_absolute_url() not in page
    client.force_login(outsider)
    assert key.get_absolute_url() not in text_of(client.get("/search/?q=production"))
