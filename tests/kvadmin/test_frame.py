"""The frame of every page: sidebar, theme, language, components."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django import forms
from django.http import QueryDict
from django.template import engines as template_engines
from django.urls import reverse
from django.utils import timezone
from django_cotton.compiler_regex import CottonCompiler

from kvadmin.models import AuditEvent, User
from kvadmin.views.base import keyset_page
from tests.support.people import make_person

pytestmark = pytest.mark.django_db


def rendered(source: str, **context: object) -> str:
    return template_engines["django"].from_string(CottonCompiler().process(source)).render(context)


def test_account_page_needs_sign_in(client):
    response = client.get(reverse("kvadmin:account"))
    assert response.status_code == 302
    assert response.url == "/account/login/?next=/account/"


def test_sidebar_lists_audit_for_administrators_only(client, administrator, operator):
    client.force_login(administrator)
    assert "Account" in client.get("/account/").content.decode()
    client.force_login(operator)
    assert "Audit" not in client.get("/account/").content.decode()


def test_theme_is_kept_with_the_account(client, viewer):
    client.force_login(viewer)
    assert (
        client.post(reverse("kvadmin:set_theme"), {"theme": "dark", "next": "/account/"}).url == "/account/"
    )
    viewer.refresh_from_db()
    assert viewer.theme == "dark"
    assert 'data-theme="dark"' in client.get("/account/").content.decode()


def test_an_unknown_theme_changes_nothing(client, viewer):
    client.force_login(viewer)
    client.post(reverse("kvadmin:set_theme"), {"theme": "pink"})
    viewer.refresh_from_db()
    assert viewer.theme == "system"


def test_next_never_leaves_this_site(client, viewer):
    client.force_login(viewer)
    response = client.post(reverse("kvadmin:set_theme"), {"theme": "dark", "next": "https://evil.example/"})
    assert response.url == "/"


def test_language_is_kept_with_account_and_cookie(client, viewer):
    client.force_login(viewer)
    response = client.post(reverse("kvadmin:set_language"), {"language": "zh-hans"})
    assert response.cookies["django_language"].value == "zh-hans"
    viewer.refresh_from_db()
    assert viewer.language == "zh-hans"


def test_no_page_carries_inline_style_or_script(client, viewer):
    client.force_login(viewer)
    html = client.get("/account/").content.decode()
    assert "style=" not in html
    assert "<script>" not in html
    assert "onclick" not in html


def test_badge_meter_time_and_bytes_render():
    assert 'class="badge ok"' in rendered('<c-badge tone="ok">Ready</c-badge>')
    meter = rendered('<c-meter :value="value" label="KV cache" />', value=0.755)
    assert 'width="75.50"' in meter
    assert "KV cache: 76%" in meter
    assert "no data" in rendered('<c-meter :value="value" />', value=None)
    moment = timezone.now() - timedelta(minutes=3, seconds=5)
    assert "3 min ago" in rendered('<c-time :value="value" />', value=moment)
    assert rendered('<c-bytes :value="value" />', value=16_396_000_000).strip() == "15.3 GiB"


def test_confirm_is_a_post_form_with_a_token():
    html = rendered(
        '<c-confirm id="gone" title="Remove?" action="/x/" trigger="Remove">Sure?</c-confirm>',
        csrf_token="tok",
    )
    assert 'method="post"' in html
    assert 'value="tok"' in html
    assert 'data-dialog="gone"' in html


def test_field_names_its_error():
    class Form(forms.Form):
        port = forms.IntegerField(help_text="1 to 65535")

    html = rendered('<c-field :field="form.port" />', form=Form({"port": "x"}))
    assert 'aria-invalid="true"' in html
    assert 'id="id_port_error"' in html
    assert 'value="x"' in html


def test_keyset_pages_go_down_and_up_again():
    for number in range(5):
        AuditEvent.objects.create(actor_name="ada", source="web", verb=f"x.{number}")
    rows = AuditEvent.objects.all()
    first = keyset_page(rows, QueryDict(""), size=2)
    assert [row.verb for row in first.rows] == ["x.4", "x.3"]
    assert first.newer == ""
    second = keyset_page(rows, QueryDict(first.older), size=2)
    assert [row.verb for row in second.rows] == ["x.2", "x.1"]
    third = keyset_page(rows, QueryDict(second.older), size=2)
    assert [row.verb for row in third.rows] == ["x.0"]
    assert third.older == ""
    back = keyset_page(rows, QueryDict(second.newer), size=2)
    assert [row.verb for row in back.rows] == ["x.4", "x.3"]
    assert back.newer == ""


def test_keyset_pages_by_name():
    for name in ("c", "a", "b"):
        make_person(name, "viewer")
    page = keyset_page(User.objects.all(), QueryDict("after=a"), by="username", size=1)
    assert [row.username for row in page.rows] == ["b"]


def test_unreadable_page_position_is_the_first_page():
    page = keyset_page(AuditEvent.objects.all(), QueryDict("after=zzz"))
    assert page.rows == []


@pytest.mark.parametrize("person", ["viewer", "outsider"])
def test_search_shows_only_what_the_person_may_open(client, request, person):
    from tests.support.factories import HostFactory

    HostFactory(name="h200-hidden")
    client.force_login(request.getfixturevalue(person))
    html = client.get("/search/?q=h200-hid", headers={"X-Requested-With": "fetch"}).content.decode()
    assert "<html" not in html
    if person == "outsider":
        assert "h200-hidden" not in html


def test_a_missing_page_says_so(client):
    response = client.get("/no-such-page/")
    assert response.status_code == 404
    assert "There is nothing at this address" in response.content.decode()


def test_a_form_without_token_gets_a_sentence(viewer):
    from django.test import Client

    client = Client(enforce_csrf_checks=True)
    client.force_login(viewer)
    response = client.post(reverse("kvadmin:set_theme"), {"theme": "dark"})
    assert response.status_code == 403
    assert "Nothing was changed" in response.content.decode()
