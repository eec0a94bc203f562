"""Teams: administrators make them, owners say who belongs, and one owner stays."""

from __future__ import annotations

import threading

import pytest
from django.db import connection

from kvadmin.actions import Actor, Conflict, Denied, Invalid
from kvadmin.actions.change_team import ChangeTeam
from kvadmin.actions.create_team import CreateTeam
from kvadmin.actions.remove_team import RemoveTeam
from kvadmin.models import AuditEvent, Team
from kvadmin.policies import Role, TeamRole
from tests.support.people import make_person
from tests.support.route_factories import BusinessFactory

pytestmark = pytest.mark.django_db


def by(user) -> Actor:
    return Actor(user=user, source="web")


def test_an_administrator_makes_a_team_with_an_owner(administrator, outsider):
    team = CreateTeam(by(administrator), " search ", {outsider: TeamRole.OWNER}).run()
    assert team.name == "search"
    event = AuditEvent.objects.get(verb="team.create")
    assert event.after == {"name": "search", "people": {"otto": "owner"}}
    assert outsider.may("key.change", team)


def test_a_team_begins_with_an_owner_unless_it_is_said(administrator, outsider):
    with pytest.raises(Invalid) as refused:
        CreateTeam(by(administrator), "search", {outsider: TeamRole.MEMBER}).run()
    assert list(refused.value.errors) == ["people"]
    assert CreateTeam(by(administrator), "search", without_owner=True).run().memberships.count() == 0


@pytest.mark.parametrize("person", ["operator", "viewer", "team_owner", "team_member", "outsider"])
def test_nobody_else_makes_or_removes_teams(person, team, request):
    user = request.getfixturevalue(person)
    with pytest.raises(Denied):
        CreateTeam(by(user), "another", {user: TeamRole.OWNER}).run()
    with pytest.raises(Denied):
        RemoveTeam(by(user), team).run()


def test_an_owner_says_who_belongs(team, team_owner, outsider):
    ChangeTeam(by(team_owner), team, people={outsider: TeamRole.MEMBER}).run()
    assert outsider.may("team.view", team)
    assert not outsider.may("team.change", team)
    ChangeTeam(by(team_owner), team, people={outsider: None}).run()
    assert not outsider.may("team.view", team)


@pytest.mark.parametrize("person", ["operator", "viewer", "team_member", "outsider"])
def test_who_does_not_own_a_team_does_not_change_it(person, team, team_owner, request):
    user = request.getfixturevalue(person)
    with pytest.raises(Denied) as refused:
        ChangeTeam(by(user), team, people={user: TeamRole.OWNER}).run()
    assert "owner of the team" in refused.value.remedy


def test_the_last_owner_stays_unless_an_administrator_says_so(team, team_owner, administrator):
    with pytest.raises(Conflict) as refused:
        ChangeTeam(by(team_owner), team, people={team_owner: TeamRole.MEMBER}).run()
    assert refused.value.code == "last_owner"
    with pytest.raises(Denied):
        ChangeTeam(by(team_owner), team, people={team_owner: None}, without_owner=True).run()
    ChangeTeam(by(administrator), team, people={team_owner: None}, without_owner=True).run()
    assert team.memberships.count() == 0


def test_an_owner_who_may_not_sign_in_does_not_count(team, team_owner, administrator):
    gone = make_person("gert", Role.MEMBER)
    team.memberships.create(user=gone, role=TeamRole.OWNER)
    gone.is_active = False
    gone.save()
    with pytest.raises(Conflict):
        ChangeTeam(by(administrator), team, people={team_owner: None}).run()


@pytest.mark.django_db(transaction=True)
def test_two_owners_who_leave_at_once_leave_one(team, team_owner):
    other = make_person("olaf", Role.MEMBER)
    team.memberships.create(user=other, role=TeamRole.OWNER)
    refused = []
    begin = threading.Barrier(2)

    def leave(user) -> None:
        begin.wait()
        try:
            ChangeTeam(by(user), team, people={user: None}).run()
        except Conflict as error:
            refused.append(error.code)
        finally:
            connection.close()

    threads = [threading.Thread(target=leave, args=[user]) for user in (team_owner, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == ["last_owner"]
    assert team.memberships.filter(role=TeamRole.OWNER).count() == 1


def test_a_name_is_taken_once(team, administrator, outsider):
    with pytest.raises(Invalid):
        CreateTeam(by(administrator), "Search", {outsider: TeamRole.OWNER}).run()
    with pytest.raises(Invalid):
        ChangeTeam(by(administrator), team, name=" ").run()
    ChangeTeam(by(administrator), team, name="shop search").run()
    assert Team.objects.get().name == "shop search"


def test_a_change_of_nothing_leaves_no_audit_row(team, team_owner):
    ChangeTeam(by(team_owner), team, name="search", people={team_owner: TeamRole.OWNER}).run()
    assert not AuditEvent.objects.filter(verb="team.change").exists()


def test_a_team_with_a_business_is_not_removed(team, administrator):
    business = BusinessFactory(team=team)
    with pytest.raises(Conflict) as refused:
        RemoveTeam(by(administrator), team).run()
    assert refused.value.code == "team_has_businesses"
    business.delete()
    RemoveTeam(by(administrator), team).run()
    assert not Team.objects.exists()
    assert AuditEvent.objects.get(verb="team.remove").subject_name == "search"


def test_who_sees_which_teams(team, team_owner, team_member, outsider, viewer, operator, administrator):
    Team.objects.create(name="others")
    seen = {user.username: Team.objects.visible_to(user).count() for user in (
        team_owner, team_member, outsider, viewer, operator, administrator
    )}  # fmt: skip
    assert seen == {"oona": 1, "mika": 1, "otto": 0, "vera": 0, "olga": 2, "ada": 2}
    owned = {user.username: Team.objects.owned_by(user).count() for user in (
        team_owner, team_member, outsider, viewer, operator, administrator
    )}  # fmt: skip
    assert owned == {"oona": 1, "mika": 0, "otto": 0, "vera": 0, "olga": 0, "ada": 2}
