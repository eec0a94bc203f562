"""The audit page: filter, difference, pages, export."""

from __future__ import annotations

import csv
import io
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from kvadmin.actions import Actor
from kvadmin.models import AuditEvent
from kvadmin.templatetags.audit import Change, changes

pytestmark = pytest.mark.django_db


@pytest.fixture
def events(administrator, viewer):
    record = AuditEvent.objects.record
    ada = Actor(user=administrator, source="web", ip="10.0.0.7")
    record(
        actor=ada, verb="user.change", subject=viewer, before={"role": "viewer"}, after={"role": "operator"}
    )
    record(actor=ada, verb="user.lift_lock", subject=viewer)
    record(actor=Actor.system(), verb="host.probe", subject=None)


@pytest.fixture
def page(client, administrator):
    client.force_login(administrator)
    return lambda **query: client.get(reverse("kvadmin:audit_list"), query)


def verbs(response):
    return [event.verb for event in response.context["page"].rows]


def test_newest_first_with_difference_and_link(page, events, viewer):
    response = page()
    assert verbs(response) == ["host.probe", "user.lift_lock", "user.change"]
    html = response.content.decode()
    assert "<del>viewer</del>" in html
    assert "<ins>operator</ins>" in html
    assert f'<a href="{viewer.get_absolute_url()}">vera</a>' in html
    assert "10.0.0.7" in html


def test_filters_by_person_verb_and_subject(page, events):
    assert verbs(page(person="kvadmin")) == ["host.probe"]
    assert verbs(page(verb="lift")) == ["user.lift_lock"]
    assert verbs(page(subject="vera")) == ["user.lift_lock", "user.change"]
    assert verbs(page(subject="user")) == ["user.lift_lock", "user.change"]


def test_filters_by_time(page, events):
    AuditEvent.objects.filter(verb="user.change").update(at=timezone.now() - timedelta(days=2))
    yesterday = (timezone.now() - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M")
    assert "user.change" not in verbs(page(since=yesterday))
    assert verbs(page(until=yesterday)) == ["user.change"]


def test_an_unreadable_time_is_said_at_its_field(page, events):
    html = page(since="yesterday").content.decode()
    assert 'id="id_since_error"' in html
    assert 'value="yesterday"' in html


def test_a_page_of_fifty_and_the_rest_behind_it(page):
    for number in range(60):
        AuditEvent.objects.record(actor=Actor.system(), verb=f"x.{number}", subject=None)
    first = page()
    assert len(first.context["page"].rows) == 50
    assert 'rel="next"' in first.content.decode()


def test_a_page_costs_the_same_number_of_queries_for_few_and_many(
    page, events, django_assert_max_num_queries
):
    with django_assert_max_num_queries(8):
        page()


def test_export_has_the_filtered_rows(client, page, events):
    page()
    response = client.get(reverse("kvadmin:audit_export"), {"verb": "user."})
    rows = list(csv.DictReader(io.StringIO(b"".join(response.streaming_content).decode())))
    assert [row["what"] for row in rows] == ["user.lift_lock", "user.change"]
    assert rows[1]["after"] == '{"role": "operator"}'
    assert response["Content-Disposition"].startswith("attachment")


def test_export_takes_the_sting_out_of_formulas(client, page, viewer):
    AuditEvent.objects.create(actor_name="=cmd()", source="web", verb="x.y")
    response = client.get(reverse("kvadmin:audit_export"))
    assert "'=cmd()" in b"".join(page() and response.streaming_content).decode()


def test_changes_names_what_differs_only():
    event = AuditEvent(before={"a": 1, "b": 2}, after={"b": 2, "c": [1]})
    assert changes(event) == [Change("a", "1", ""), Change("c", "", "[1]")]
