"""What is said once is read by each reader in the reader's language."""

from __future__ import annotations

import copy

import pytest
from django.utils import translation

from engines.models import Engine, Host
from engines.states import note_reason
from kvadmin.sentences import Sentence, gettext, joined, ngettext, pack, unpack
from tests.support.factories import EngineFactory, HostFactory


def in_chinese(text: str) -> str:
    stored = pack(text)
    with translation.override("zh-hans"):
        return str(unpack(stored))


def test_a_sentence_is_a_string_in_the_language_of_the_moment():
    said = gettext("Cancelled.")
    assert said == "Cancelled."
    assert in_chinese(said) == "已取消。"
    assert unpack(pack(said)) == said


def test_values_stay_and_may_be_sentences():
    said = gettext("%(host)s answers.") % {"host": "h200-1"}
    assert said == "h200-1 answers."
    assert in_chinese(said) == "h200-1 有响应。"
    outer = gettext("Overridden: %(text)s") % {"text": said}
    assert outer == "Overridden: h200-1 answers."
    assert "h200-1 有响应。" in in_chinese(outer)


def test_joined_sentences_are_translated_each():
    whole = joined(gettext("Cancelled."), "", "as it is", gettext("Cancelled."))
    assert whole == "Cancelled. as it is Cancelled."
    assert in_chinese(whole) == "已取消。 as it is 已取消。"
    assert joined("", "") == ""


def test_numbers_choose_the_form():
    assert ngettext("%(count)d GPU: %(names)s.", "%(count)d GPUs: %(names)s.", 1) % {
        "count": 1,
        "names": "H200",
    } == ("1 GPU: H200.")


def test_a_sentence_can_be_copied():
    said = gettext("%(host)s answers.") % {"host": "h200-1"}
    assert copy.deepcopy(said) == said
    assert in_chinese(copy.deepcopy(said)) == in_chinese(said)


def test_a_translation_that_does_not_fit_any_more_is_not_used():
    assert str(Sentence({"t": "%(now)s is another text", "p": {"now": 1}})) == "1 is another text"


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["plain", "", "\x1e[]", '\x1e["x"]'])
def test_plain_text_stays_as_it_is_and_is_never_taken_for_a_sentence(text):
    host = HostFactory(state_text=text)
    assert Host.objects.get(pk=host.pk).state_text == text.lstrip("\x1e")


@pytest.mark.django_db
def test_a_reason_is_read_in_the_reader_s_language(client, viewer):
    engine = EngineFactory()
    note_reason(engine, "found_again", gettext("The engine was found running on its host."))
    assert Engine.objects.get(pk=engine.pk).reason == "The engine was found running on its host."
    viewer.language = "zh-hans"
    viewer.save()
    client.force_login(viewer)
    with translation.override("zh-hans"):
        chinese = Engine.objects.get(pk=engine.pk).reason
    assert chinese != engine.reason
    assert chinese in client.get(engine.get_absolute_url()).content.decode()
