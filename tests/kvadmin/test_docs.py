"""The documentation names what there is."""

from __future__ import annotations

import re

import pytest

from kvadmin.env import BASE_DIR, FIELDS, KNOWN_NAMES, OWN_PREFIXES

PAGES = [*sorted((BASE_DIR / "docs").glob("*.md")), BASE_DIR / "README.md", BASE_DIR / "CONTRIBUTING.md"]


@pytest.mark.parametrize("name", FIELDS)
def test_every_setting_is_in_the_table(name):
    table = [line for line in (BASE_DIR / "docs/operations.md").read_text().splitlines() if line[:1] == "|"]
    assert any(f"`{name}`" in line for line in table)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_setting_named_exists(page):
    named = set(re.findall(r"\bKVADMIN_[A-Z_]+\b", page.read_text()))
    assert {name for name in named if not name.startswith(OWN_PREFIXES)} <= KNOWN_NAMES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_and_path_leads_somewhere(page):
    text = page.read_text()
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    paths = re.findall(
        r"`((?:kvadmin|engines|routes|tests|templates|static|tools|docs|bench)/[\w./-]+)`", text
    )
    missing = [link for link in links if not (page.parent / link).exists()]
    missing += [path for path in paths if not (BASE_DIR / path).exists()]
    assert missing == []


def test_every_make_target_named_exists():
    targets = set(re.findall(r"^([\w-]+):", (BASE_DIR / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        # in code only: `make run`, or a line of its own
        named = set(re.findall(r"(?:`|^    )make ([a-z][a-z-]*)", page.read_text(), re.MULTILINE))
        assert named <= targets, page.name
