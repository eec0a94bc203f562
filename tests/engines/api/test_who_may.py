"""Every endpoint of the management API as each kind of person: nothing is open by oversight."""

from __future__ import annotations

import pytest
from drf_spectacular.generators import SchemaGenerator

from kvadmin.policies import Role
from tests.support.api import Api, assert_problem

VIEWER, OPERATOR, ADMINISTRATOR, MEMBER = Role.VIEWER, Role.OPERATOR, Role.ADMINISTRATOR, Role.MEMBER

#: method and path -> the least role; {id} stands for an id
LEAST = {
    "GET system/version/": MEMBER,
    "GET tokens/": MEMBER,
    "POST tokens/": MEMBER,
    "GET tokens/{id}/": MEMBER,
    "DELETE tokens/{id}/": MEMBER,
    "GET users/": ADMINISTRATOR,
    "POST users/": ADMINISTRATOR,
    "GET users/{id}/": ADMINISTRATOR,
    "PATCH users/{id}/": ADMINISTRATOR,
    "POST users/{id}/reset-password/": ADMINISTRATOR,
    "GET audit/": ADMINISTRATOR,
    "GET audit/{id}/": ADMINISTRATOR,
    "GET hosts/": VIEWER,
    "POST hosts/": OPERATOR,
    "GET hosts/{id}/": VIEWER,
    "PATCH hosts/{id}/": OPERATOR,
    "DELETE hosts/{id}/": OPERATOR,
    "POST hosts/{id}/confirm-key/": OPERATOR,
    "POST hosts/{id}/contact/": OPERATOR,
    "POST hosts/{id}/probe/": OPERATOR,
    "POST hosts/{id}/provision/": OPERATOR,
    "POST hosts/{id}/discover/": OPERATOR,
    "GET hosts/{id}/discovered/": VIEWER,
    "POST hosts/{id}/adopt/": OPERATOR,
    "GET hosts/{id}/environments/": VIEWER,
    "GET hosts/{id}/gpu-samples/": VIEWER,
    "GET profiles/": VIEWER,
    "POST profiles/": OPERATOR,
    "POST profiles/preview-command/": VIEWER,
    "GET profiles/{id}/": VIEWER,
    "PATCH profiles/{id}/": OPERATOR,
    "POST profiles/{id}/archive/": OPERATOR,
    "POST profiles/{id}/restore/": OPERATOR,
    "GET profiles/{id}/revisions/": VIEWER,
    "POST profiles/{id}/revisions/": OPERATOR,
    "GET profiles/{id}/revisions/{number}/": VIEWER,
    "GET profiles/{id}/compare/": VIEWER,
    "GET engines/": VIEWER,
    "POST engines/": OPERATOR,
    "GET engines/{id}/": VIEWER,
    "PATCH engines/{id}/": OPERATOR,
    "DELETE engines/{id}/": OPERATOR,
    "POST engines/{id}/start/": OPERATOR,
    "POST engines/{id}/stop/": OPERATOR,
    "POST engines/{id}/drain/": OPERATOR,
    "POST engines/{id}/restart/": OPERATOR,
    "POST engines/operate/": OPERATOR,
    "GET engines/{id}/starts/": VIEWER,
    "GET engines/{id}/transitions/": VIEWER,
    "GET engines/{id}/log/": VIEWER,
    "GET engines/{id}/metrics/": VIEWER,
    "GET engines/{id}/metrics/series/": VIEWER,
    "GET operations/": VIEWER,
    "GET operations/{uuid}/": VIEWER,
    "GET operations/{uuid}/lines/": VIEWER,
    "GET operations/{uuid}/events/": VIEWER,
    "POST operations/{uuid}/cancel/": OPERATOR,
    # what a team owns: whoever is in no team finds nothing there
    "GET teams/": MEMBER,
    "POST teams/": ADMINISTRATOR,
    "GET teams/{id}/": MEMBER,
    "PATCH teams/{id}/": MEMBER,
    "DELETE teams/{id}/": ADMINISTRATOR,
    "GET businesses/": MEMBER,
    "POST businesses/": MEMBER,
    "GET businesses/{id}/": MEMBER,
    "PATCH businesses/{id}/": MEMBER,
    "DELETE businesses/{id}/": MEMBER,
    "GET keys/": MEMBER,
    "POST keys/": MEMBER,
    "POST keys/import/": MEMBER,
    "GET keys/{id}/": MEMBER,
    "PATCH keys/{id}/": MEMBER,
    "POST keys/{id}/disable/": MEMBER,
    "POST keys/{id}/enable/": MEMBER,
    "POST keys/{id}/rotate/": MEMBER,
    "POST keys/{id}/revoke/": MEMBER,
    "GET usage/": MEMBER,
    "GET routes/": VIEWER,
    "POST routes/": OPERATOR,
    "POST routes/import/": OPERATOR,
    "GET routes/export/": VIEWER,
    "GET routes/{id}/": VIEWER,
    "PATCH routes/{id}/": OPERATOR,
    "DELETE routes/{id}/": OPERATOR,
}
#: POST that changes nothing: a read token will do
READS = {"POST profiles/preview-command/"}
#: an id that is none: whoever may ask learns that there is nothing
NOTHING = {"id": "999999999", "number": "1", "uuid": "00000000-0000-0000-0000-000000000000"}
RANK = [MEMBER, VIEWER, OPERATOR, ADMINISTRATOR]


def documented() -> set[str]:
    schema = SchemaGenerator().get_schema(request=None, public=True)
    return {
        f"{method.upper()} {path.removeprefix('/api/manage/v1/')}"
        for path, methods in schema["paths"].items()
        for method in methods
    }


def test_the_table_has_every_endpoint():
    assert documented() == set(LEAST)


@pytest.mark.parametrize("endpoint", sorted(LEAST))
def test_each_person_may_what_the_role_says(endpoint, administrator, operator, viewer, outsider):
    method, path = endpoint.split(" ")
    path = path.format(**NOTHING)
    people = {ADMINISTRATOR: administrator, OPERATOR: operator, VIEWER: viewer, MEMBER: outsider}
    for role, person in people.items():
        response = Api(person).call(method, path, {} if method != "GET" else None)
        if RANK.index(role) >= RANK.index(LEAST[endpoint]):
            assert response.status_code in {200, 201, 400, 404}, (role, response.content)
        else:
            assert_problem(response, 403, "permission_denied")


@pytest.mark.parametrize("endpoint", sorted(LEAST))
def test_strangers_may_nothing(db, endpoint):
    method, path = endpoint.split(" ")
    response = Api().call(method, path.format(**NOTHING), {} if method != "GET" else None)
    assert_problem(response, 401, "not_signed_in")


@pytest.mark.parametrize("endpoint", sorted(endpoint for endpoint in LEAST if not endpoint.startswith("GET")))
def test_a_read_token_changes_nothing(administrator, endpoint):
    method, path = endpoint.split(" ")
    response = Api(administrator, "read").call(method, path.format(**NOTHING), {})
    if endpoint in READS:
        assert_problem(response, 400, "invalid")
    else:
        assert_problem(response, 403, "token_scope")
