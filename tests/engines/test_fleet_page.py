from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from engines.choices import EngineState
from engines.models import Engine
from engines.states import touch_engine
from engines.views.fleet import make_cards, totals
from tests.support.factories import EngineFactory, HostFactory

pytestmark = pytest.mark.django_db


def cards_url(page, **more):
    query = {"since": page.context["since"], "shape": page.context["shape"], "count": page.context["engines"]}
    return reverse("engines:fleet_cards"), {**query, **more}


def test_a_stranger_is_sent_to_sign_in_and_a_member_to_the_models(client, outsider):
    assert client.get(reverse("engines:fleet")).status_code == 302
    client.force_login(outsider)
    assert client.get(reverse("engines:fleet")).url == reverse("routes:model_list")
    assert client.get(reverse("engines:fleet_cards")).status_code == 403


def test_an_empty_fleet_leads_to_the_first_engine(client, operator):
    client.force_login(operator)
    page = client.get(reverse("engines:fleet")).content.decode()
    assert reverse("engines:host_list") in page
    assert reverse("engines:engine_add") in page


def test_the_first_engine_is_news_to_an_empty_fleet(client, viewer):
    client.force_login(viewer)
    url = reverse("engines:fleet_cards")
    assert f'data-fleet-empty="{url}"' in client.get(reverse("engines:fleet")).content.decode()
    assert client.get(url, {"since": 0, "count": 0}).status_code == 204
    EngineFactory()
    assert client.get(url, {"since": 0, "count": 0}).status_code == 200


def test_a_viewer_sees_cards_and_no_button_to_make_engines(client, viewer):
    engine = EngineFactory(name="qwen3-8b-v1")
    client.force_login(viewer)
    page = client.get(reverse("engines:fleet")).content.decode()
    assert f'id="engine-{engine.pk}"' in page
    assert reverse("engines:engine_add") not in page


def test_no_data_is_said_and_never_shown_as_zero(client, viewer):
    engine = EngineFactory()
    card = make_cards([engine])[0]
    assert (card.usage, card.running, card.waiting) == (None, None, None)
    assert [value for _name, value, _small in totals([card])][1:4] == ["–", "–", "–"]
    client.force_login(viewer)
    assert "no data" in client.get(reverse("engines:fleet")).content.decode()


def test_the_poll_answers_204_until_something_changes(client, viewer):
    first, second = EngineFactory(), EngineFactory()
    for engine in (first, second):
        touch_engine(engine.pk)
    client.force_login(viewer)
    page = client.get(reverse("engines:fleet"))
    assert client.get(*cards_url(page)).status_code == 204
    engine = Engine.objects.get(pk=second.pk)
    engine.move(EngineState.STARTING, only_from=(EngineState.STOPPED,))
    answer = client.get(*cards_url(page))
    assert answer.status_code == 200
    text = answer.content.decode()
    assert f'id="engine-{second.pk}"' in text
    assert f'id="engine-{first.pk}"' not in text


def test_a_new_engine_brings_the_whole_grid(client, viewer):
    first = EngineFactory()
    touch_engine(first.pk)
    client.force_login(viewer)
    page = client.get(reverse("engines:fleet"))
    fresh = EngineFactory()
    text = client.get(*cards_url(page)).content.decode()
    assert 'id="fleet-groups"' in text
    assert f'id="engine-{first.pk}"' in text
    assert f'id="engine-{fresh.pk}"' in text


def test_trouble_shows_the_failed_and_the_unreachable_only(client, viewer):
    fine = EngineFactory(observed=EngineState.READY)
    failed = EngineFactory(observed=EngineState.FAILED, reason="No available memory for the cache blocks.")
    lost = EngineFactory(observed=EngineState.UNREACHABLE, state_at=timezone.now() - timedelta(minutes=3))
    client.force_login(viewer)
    page = client.get(reverse("engines:fleet"), {"view": "trouble"}).content.decode()
    assert f'id="engine-{failed.pk}"' in page
    assert f'id="engine-{lost.pk}"' in page
    assert f'id="engine-{fine.pk}"' not in page
    assert "No available memory" in page


def test_groups_by_host_are_named_and_filters_hold(client, viewer):
    host = HostFactory(name="h200-a")
    engine = EngineFactory(host=host, name="llama-3")
    other = EngineFactory(host=HostFactory(name="h200-b"), name="qwen3")
    client.force_login(viewer)
    page = client.get(reverse("engines:fleet"), {"view": "host"}).content.decode()
    assert page.index("h200-a") < page.index("h200-b")
    found = client.get(reverse("engines:fleet"), {"q": "LLAMA"}).content.decode()
    assert f'id="engine-{engine.pk}"' in found
    assert f'id="engine-{other.pk}"' not in found
    assert client.get(reverse("engines:fleet"), {"view": "nonsense", "state": "x"}).status_code == 200


def test_the_page_costs_the_same_queries_for_many_engines(client, viewer, django_assert_max_num_queries):
    for _n in range(12):
        EngineFactory()
    client.force_login(viewer)
    client.get(reverse("engines:fleet"))
    with django_assert_max_num_queries(16):
        client.get(reverse("engines:fleet"))
