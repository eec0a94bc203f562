"""Teams, businesses and keys over the API: owners change, members look, outsiders find nothing."""

from __future__ import annotations

import pytest
from django.conf import settings

from kvadmin.models import IdempotencyRecord, Team
from routes import keyformat
from routes.models import Business, Key
from tests.support.api import Api, assert_problem
from tests.support.route_factories import BusinessFactory, KeyFactory, RouteFactory

pytestmark = pytest.mark.django_db

STRONG = "cPq7Lm2ZxT9vWb4KdR8nYs3H"


@pytest.fixture
def business(team):
    return BusinessFactory(team=team, name="shop")


@pytest.fixture
def key(business):
    return KeyFactory(business=business)


def test_an_owner_issues_a_key_whose_secret_is_in_this_answer_only(business, team_owner):
    RouteFactory(name="qwen3-8b-v1")
    api = Api(team_owner)
    body = {
        "business": business.pk,
        "name": "production",
        "models": ["qwen3-8b-v1", "gone-8b-v1"],
        "addresses": ["10.0.0.0/8"],
        "concurrent": 4,
    }
    response = api.post("keys/", body, **{"Idempotency-Key": "one"})
    assert response.status_code == 201, response.content
    made = response.json()
    key = Key.objects.get()
    assert bytes(key.digest) == keyformat.digest(made["secret"], settings.KVADMIN_PEPPER)
    assert (made["state"], made["shown"], made["team"]["name"]) == ("active", key.masked, "search")
    assert "gone-8b-v1" in made["warnings"][0]
    assert made["secret"] not in api.get(f"keys/{key.pk}/").content.decode()
    assert made["secret"] not in api.get("keys/").content.decode()
    again = api.post("keys/", body, **{"Idempotency-Key": "one"})
    assert (again.json()["id"], again.json()["secret"]) == (key.pk, None)
    assert made["secret"] not in str([vars(row) for row in IdempotencyRecord.objects.all()])


def test_members_and_operators_look_and_change_nothing(key, team_member, operator):
    for person in (team_member, operator):
        api = Api(person)
        assert api.get(f"keys/{key.pk}/").status_code == 200
        assert [row["id"] for row in api.get("keys/").json()["results"]] == [key.pk]
        for path in ("disable", "enable", "rotate", "revoke"):
            problem = assert_problem(api.post(f"keys/{key.pk}/{path}/"), 403, "permission_denied")
            assert "owner of the team" in problem["remedy"]
        assert_problem(api.patch(f"keys/{key.pk}/", {"name": "mine"}), 403, "permission_denied")
        new = {"business": key.business_id, "name": "mine"}
        assert_problem(api.post("keys/", new), 403, "permission_denied")
        assert_problem(api.post("keys/import/", {**new, "secret": STRONG}), 403, "permission_denied")
        assert_problem(api.patch(f"businesses/{key.business_id}/", {"name": "x"}), 403, "permission_denied")
        assert_problem(api.delete(f"businesses/{key.business_id}/"), 403, "permission_denied")
        team = key.business.team
        assert_problem(api.patch(f"teams/{team.pk}/", {"name": "x"}), 403, "permission_denied")
        assert_problem(api.post("businesses/", {"team": team.pk, "name": "x"}), 403, "permission_denied")


def test_outsiders_find_nothing(key, outsider, viewer):
    for person in (outsider, viewer):
        api = Api(person)
        for kind, pk in (("teams", key.business.team_id), ("businesses", key.business_id), ("keys", key.pk)):
            assert api.get(f"{kind}/").json()["results"] == []
            assert_problem(api.get(f"{kind}/{pk}/"), 404, "not_found")
            assert_problem(api.patch(f"{kind}/{pk}/", {}), 404, "not_found")
        for verb in ("disable", "enable", "rotate", "revoke"):
            assert_problem(api.post(f"keys/{key.pk}/{verb}/"), 404, "not_found")
        new = {"business": key.business_id, "name": "mine"}
        assert_problem(api.post("keys/", new), 400, "invalid", "business")
    assert Key.objects.count() == 1


def test_the_life_of_a_key(key, team_owner):
    api = Api(team_owner)
    assert api.post(f"keys/{key.pk}/disable/").json()["state"] == "disabled"
    assert_problem(api.post(f"keys/{key.pk}/disable/"), 409, "key_disabled")
    assert api.post(f"keys/{key.pk}/enable/").json()["state"] == "active"
    changed = api.patch(f"keys/{key.pk}/", {"requests_per_minute": 60, "models": ["qwen3-8b-v1"]}).json()
    assert (changed["requests_per_minute"], changed["models"]) == (60, ["qwen3-8b-v1"])
    assert api.patch(f"keys/{key.pk}/", {"models": None}).json()["models"] is None
    assert_problem(api.patch(f"keys/{key.pk}/", {"concurrent": 0}), 400, "invalid", "concurrent")
    assert_problem(api.patch(f"keys/{key.pk}/", {"addresses": ["10.1.2.3/8"]}), 400, "invalid", "addresses")
    rotated = api.post(f"keys/{key.pk}/rotate/", {"overlap_s": 3600})
    assert rotated.status_code == 201
    successor = rotated.json()
    assert successor["predecessor"] == key.pk
    assert keyformat.public_id(successor["secret"]) == successor["public_id"]
    old = api.get(f"keys/{key.pk}/").json()
    assert (old["state"], old["successor"], old["safe_to_remove"]) == ("rotating", successor["id"], False)
    later = api.patch(f"keys/{key.pk}/", {"overlap_ends_at": "2126-01-01T00:00:00Z"}).json()
    assert later["overlap_ends_at"] == "2126-01-01T00:00:00Z"
    assert api.post(f"keys/{key.pk}/revoke/").json()["state"] == "revoked"
    assert_problem(api.post(f"keys/{key.pk}/revoke/"), 409, "key_revoked")


def test_keys_are_filtered(key, team_owner):
    ended = KeyFactory(business=key.business)
    api = Api(team_owner)
    api.post(f"keys/{ended.pk}/revoke/")

    def ids(query: str) -> list[int]:
        return [row["id"] for row in api.get(f"keys/?{query}").json()["results"]]

    assert ids("") == [ended.pk, key.pk]
    assert ids("usable=true") == [key.pk]
    assert ids("usable=false") == [ended.pk]
    assert ids(f"team={key.business.team_id}&public_id={key.public_id}") == [key.pk]
    assert ids("business=999") == []
    assert ids("expires_soon=true") == []


def test_an_existing_secret_is_taken_over(business, team_owner):
    api = Api(team_owner)
    new = {"business": business.pk, "name": "old gateway", "secret": STRONG}
    response = api.post("keys/import/", new)
    assert response.status_code == 201
    assert (response.json()["imported"], response.json()["shown"]) == (True, f"…{STRONG[-4:]}")
    assert STRONG not in response.content.decode()
    assert_problem(api.post("keys/import/", new), 400, "invalid", "secret")
    weak = assert_problem(api.post("keys/import/", {**new, "secret": "EMPTY"}), 400, "invalid", "secret")
    assert len(weak["errors"]["secret"]) == 3


def test_an_owner_runs_the_team(team, team_owner, outsider):
    api = Api(team_owner)
    made = api.post("businesses/", {"team": team.pk, "name": "support"})
    assert made.status_code == 201
    assert_problem(api.post("businesses/", {"team": team.pk, "name": "Support"}), 400, "invalid", "name")
    changed = api.patch(f"teams/{team.pk}/", {"people": {"otto": "member"}}).json()
    assert changed["people"] == {"oona": "owner", "otto": "member"}
    assert_problem(api.patch(f"teams/{team.pk}/", {"people": {"nobody": "member"}}), 400, "invalid", "people")
    assert_problem(api.patch(f"teams/{team.pk}/", {"people": {"oona": None}}), 409, "last_owner")
    assert_problem(api.delete(f"teams/{team.pk}/"), 403, "permission_denied")
    assert api.delete(f"businesses/{made.json()['id']}/").status_code == 204
    assert not Business.objects.exists()


def test_an_administrator_makes_and_removes_teams(administrator, outsider):
    api = Api(administrator)
    made = api.post("teams/", {"name": "search", "people": {"otto": "owner"}})
    assert made.status_code == 201
    assert_problem(api.post("teams/", {"name": "other"}), 400, "invalid", "people")
    assert api.delete(f"teams/{made.json()['id']}/").status_code == 204
    assert not Team.objects.exists()
