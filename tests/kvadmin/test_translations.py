"""The catalogue of each language: complete, sound, compiled without GNU gettext, and used by pages."""

from __future__ import annotations

import gettext
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog, Message
from babel.messages.pofile import read_po
from django.conf import settings
from django.urls import reverse

from kvadmin.catalogues import compile_catalogues

CODE = ("engines", "kvadmin", "routes")
CATALOGUE = Path("zh_Hans/LC_MESSAGES/django.po")
PLACEHOLDER = re.compile(r"%\(\w+\)[-+0-9.]*[a-z]|%%|%[sd]|\{\w+\}")


def catalogue(path: Path) -> Catalog:
    with path.open("rb") as file:
        return read_po(file, locale="zh_Hans", abort_invalid=True)


def messages(of: Catalog) -> list[Message]:
    return [message for message in of if message.id]


def texts(message: Message) -> tuple[list[str], list[str]]:
    """What it is called in the sources and what it is translated to, plural forms included."""
    sources = list(message.id) if message.pluralizable else [message.id]
    targets = list(message.string) if message.pluralizable else [message.string]
    return sources, targets


def test_every_text_of_the_sources_is_translated(tmp_path):
    for name in (*CODE, "templates", "locale"):
        shutil.copytree(
            settings.BASE_DIR / name, tmp_path / name, ignore=shutil.ignore_patterns("*.mo", "*.pyc")
        )
    shutil.copy(settings.BASE_DIR / "manage.py", tmp_path)
    subprocess.run(
        [sys.executable, "manage.py", "makemessages", "--locale", "zh_Hans"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        check=True,
        capture_output=True,
    )
    found = catalogue(tmp_path / "locale" / CATALOGUE)
    assert len(messages(found)) > 1500
    wanting = [message.id for message in messages(found) if message.fuzzy or not all(texts(message)[1])]
    assert not wanting, f"{len(wanting)} without a translation (make messages lists them): {wanting[:20]}"
    gone = [message.id for message in found.obsolete.values()]
    assert not gone, f"no longer in the sources (make messages removes them): {gone[:20]}"


@pytest.mark.parametrize(
    "path", sorted((settings.BASE_DIR / "locale").glob("*/LC_MESSAGES/django.po")), ids=str
)
def test_translations_keep_what_is_filled_in(path):
    wrong = []
    for message in messages(catalogue(path)):
        sources, targets = texts(message)
        # of a plural, the last form has all of them: the singular may say "one"
        wanted = set(PLACEHOLDER.findall(sources[-1]))
        wrong += [(sources[-1], text) for text in targets if set(PLACEHOLDER.findall(text)) != wanted]
    assert not wrong


def test_the_sign_in_page_comes_in_the_browsers_language(client, db):
    page = client.get("/account/login/", headers={"accept-language": "zh-Hans"}).content.decode()
    assert 'lang="zh-hans"' in page
    assert "登录" in page
    assert "Sign in" not in page


def test_the_fleet_comes_in_the_accounts_language(client, viewer):
    viewer.language = "zh-hans"
    viewer.save()
    client.force_login(viewer)
    page = client.get(reverse("engines:fleet"), headers={"accept-language": "en"}).content.decode()
    assert 'lang="zh-hans"' in page
    assert "机群" in page
    assert "Fleet" not in page


def test_what_a_library_says_is_translated_too(client, viewer):
    viewer.language = "zh-hans"
    viewer.save()
    client.force_login(viewer)
    sent = {"oldpassword": "correct horse battery", "password1": "a", "password2": "a"}
    page = client.post(reverse("account_change_password"), sent).content.decode()
    assert "密码太短" in page
    assert "too short" not in page


def test_no_text_is_filled_in_before_it_is_looked_up():
    early = re.compile(
        r"""\b(?:_|n?p?gettext(?:_lazy|_noop)?)\(\s*(?:f["']|["'][^"'\n]*["']\s*(?:%|\.format))"""
    )
    found = [
        f"{path}: {match[0]}"
        for folder in CODE
        for path in (settings.BASE_DIR / folder).rglob("*.py")
        for match in early.finditer(path.read_text())
    ]
    assert not found


@pytest.fixture
def source(tmp_path):
    po = tmp_path / "locale" / CATALOGUE
    po.parent.mkdir(parents=True)
    po.write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "Ready"\nmsgstr "就绪"\n'
    )
    return po


def ready(mo: Path) -> str:
    with mo.open("rb") as file:
        return gettext.GNUTranslations(file).gettext("Ready")


def test_a_catalogue_is_compiled_once_and_again_after_a_change(source, tmp_path):
    folder = tmp_path / "locale"
    mo = source.with_suffix(".mo")
    assert compile_catalogues(folder, tmp_path / "home") == 1
    assert ready(mo) == "就绪"
    assert compile_catalogues(folder, tmp_path / "home") == 0
    source.write_text(source.read_text().replace("就绪", "可用"))
    os.utime(source, ns=(mo.stat().st_mtime_ns + 1, mo.stat().st_mtime_ns + 1))
    os.utime(mo, ns=(mo.stat().st_mtime_ns - 1, mo.stat().st_mtime_ns - 1))
    assert compile_catalogues(folder, tmp_path / "home") == 1
    assert ready(mo) == "可用"


def test_where_the_checkout_cannot_be_written_it_is_compiled_into_the_home(source, tmp_path):
    # a folder of that name cannot be replaced, not even by root
    blocked = source.with_suffix(".mo")
    (blocked / "in the way").mkdir(parents=True)
    os.utime(blocked, (0, 0))
    home = tmp_path / "home"
    assert compile_catalogues(tmp_path / "locale", home) == 1
    compiled = home / CATALOGUE.with_suffix(".mo")
    assert ready(compiled) == "就绪"
    assert compile_catalogues(tmp_path / "locale", home) == 0
    # once the checkout can be written, its own file is not hidden by the older one
    shutil.rmtree(blocked)
    os.utime(compiled, (0, 0))
    assert compile_catalogues(tmp_path / "locale", home) == 1
    assert blocked.is_file()
    assert not compiled.exists()
    assert {*blocked.parent.iterdir()} == {source, blocked}
