"""The catalogue as a page: what a version has, what became of the rest."""

from __future__ import annotations

import pytest
from django.urls import reverse

from engines.models import VllmFlags
from engines.vllm.catalog import all_flags
from engines.vllm.fields import fields_by_flag
from engines.vllm.meanings import OTHERS, meaning_of
from engines.vllm.releases import flags_as_json, release
from kvadmin.policies import Role
from tests.support.people import make_person

pytestmark = pytest.mark.django_db


@pytest.fixture
def page(client):
    client.force_login(make_person("vera", Role.VIEWER))

    def get(**query: str) -> str:
        return client.get(reverse("engines:flag_list"), query).content.decode()

    return get


def test_it_shows_what_a_version_has(page):
    html = page(version="0.19.1")
    assert "Flags of vLLM 0.19.1" in html
    assert ">--gpu-memory-utilization<" in html
    assert "<td>0.9</td>" in html
    assert ">--swap-space<" not in html
    assert page(version="0.20.0").count("<td>0.92</td>") == 1


def test_it_shows_what_became_of_the_others(page):
    html = page(version="0.33.0", show="gone")
    assert "gone, last in 0.17.1" in html
    assert "gone, last in 0.16.0; now --enable-log-requests" in html
    assert "from 0.10.1" in page(version="0.9.2", show="gone")
    assert "deprecated; now --runner" in page(version="0.12.0", q="--task")


def test_it_finds_by_name_and_meaning(page):
    assert "--max-num-seqs" in page(q="run together at most")
    assert "No flag matches" in page(q="nothing like this")


def test_it_offers_versions_that_were_read_from_hosts(page):
    VllmFlags.objects.create(
        version="0.34.0", flags=flags_as_json(release("0.33.0").flags), read_from="h200-1: /vllm"
    )
    html = page()
    assert "Flags of vLLM 0.34.0" in html
    assert "Flags as this vLLM printed them on a host." in html


def test_people_without_the_right_do_not_see_it(client):
    url = reverse("engines:flag_list")
    assert client.get(url).status_code == 302
    client.force_login(make_person("otto", Role.MEMBER))
    assert client.get(url).status_code in {403, 404}


def test_meanings_are_of_flags_that_exist():
    assert set(OTHERS) <= set(all_flags())
    assert not set(OTHERS) & set(fields_by_flag())
    assert all(meaning_of(flag) for flag in fields_by_flag())
