"""The system page: processes, services, disk; and the warning on every page."""

from __future__ import annotations

import os

import pytest
from django.urls import reverse

from kvadmin.up import proc, status
from routes.usage.tables import HOURS, MINUTES

pytestmark = pytest.mark.django_db


@pytest.fixture
def supervised(settings, tmp_path):
    """A home whose supervisor (this very process) says that one process ended and waits."""
    me = proc.identity(os.getpid())
    (tmp_path / "run").mkdir()
    rows = [
        status.ProcessStatus("console", status.RUNNING, me.pid, me.ticks, 0, status.now()),
        status.ProcessStatus("worker", status.WAITING, None, None, 3, status.now(), "ended with status 1"),
    ]
    status.write(tmp_path, status.UpStatus("run", me.pid, me.ticks, "http://c", "http://g", rows))
    settings.HOME = tmp_path


def test_is_for_operators_and_above(client, operator, viewer, outsider, administrator):
    url = reverse("kvadmin:system")
    assert client.get(url).url.startswith("/account/login/")
    for person, expected in ((outsider, 403), (viewer, 403), (operator, 200), (administrator, 200)):
        client.force_login(person)
        assert client.get(url).status_code == expected


def test_services_answer(client, operator):
    client.force_login(operator)
    services = {row.name: row.tone for row in client.get(reverse("kvadmin:system")).context["services"]}
    assert services == {"PostgreSQL": "ok", "Valkey": "ok"}


def test_it_says_how_long_things_are_kept(client, operator, settings):
    settings.KVADMIN_KEEP_AUDIT_D, settings.KVADMIN_KEEP_OPERATIONS_D = 365, 77
    client.force_login(operator)
    html = client.get(reverse("kvadmin:system")).content.decode()
    assert "<dt>Audit events</dt><dd>365 days</dd>" in html
    assert "<dt>Operations that have ended</dt><dd>77 days</dd>" in html


def test_it_says_what_is_kept_of_usage(client, operator, settings):
    settings.KVADMIN_KEEP_USAGE_D, settings.KVADMIN_KEEP_USAGE_GB = 45, 7
    settings.KVADMIN_KEEP_MINUTES_D, settings.KVADMIN_KEEP_HOURS_D = 10, 500
    settings.ENV = settings.ENV.model_copy(update={"spool_mb": 333})
    client.force_login(operator)
    kept = client.get(reverse("kvadmin:system")).context["kept"]
    assert kept["Usage, each request"] == "45 days, or until they take 7 GB"
    assert kept["Usage by the minute"] == f"{MINUTES.keep.days} days" == "45 days"
    assert kept["Usage by the hour"] == f"{HOURS.keep.days} days" == "500 days"
    assert kept["Usage that waits in a gateway for the database"] == "up to 333 MB for each worker"


def test_valkey_away_is_said_with_what_it_means(client, operator, settings):
    settings.CACHES = {
        "default": {"BACKEND": "kvadmin.cache.LossyCache", "LOCATION": "unix:///nonexistent/valkey.sock"}
    }
    client.force_login(operator)
    assert "nothing is lost" in client.get(reverse("kvadmin:system")).content.decode()


def test_a_crashed_process_is_shown_here_and_in_the_sidebar(client, operator, viewer, supervised):
    client.force_login(operator)
    html = client.get(reverse("kvadmin:system")).content.decode()
    assert "Ended, starts again soon" in html
    assert "ended with status 1" in html
    assert '<span class="count">1' in html
    client.force_login(viewer)
    assert '<span class="count">' not in client.get("/account/").content.decode()


def test_without_a_supervisor_the_page_says_who_knows(client, operator, settings, tmp_path):
    settings.HOME = tmp_path
    client.force_login(operator)
    assert "systemd" in client.get(reverse("kvadmin:system")).content.decode()


def test_an_exposed_console_warns_on_every_page(client, operator, settings):
    settings.KVADMIN_EXPOSED = True
    for path in ("/account/login/", "/account/"):
        assert "passwords and keys can be read on the way" in client.get(path, follow=True).content.decode()
        client.force_login(operator)
    settings.KVADMIN_EXPOSED = False
    assert "passwords and keys" not in client.get("/account/").content.decode()
