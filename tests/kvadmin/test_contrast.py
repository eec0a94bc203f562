"""Every pair of text and background that the styles use has the contrast of WCAG AA, in both themes."""

from __future__ import annotations

import re

import pytest

from kvadmin.env import BASE_DIR

CSS = BASE_DIR / "static" / "css"
TOKEN = re.compile(r"--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)")

SURFACES = ("bg", "surface", "raised", "sunken")
#: text token -> the backgrounds it stands on
TEXT = {
    "text": (*SURFACES, "accent-soft", "ok-soft", "warn-soft", "bad-soft", "off-soft"),
    "muted": (*SURFACES, "off-soft"),
    "faint": SURFACES,
    "accent": (*SURFACES, "accent-soft", "off-soft"),
    "on-accent": ("accent", "accent-hover"),
    "ok": (*SURFACES, "ok-soft"),
    "warn": (*SURFACES, "warn-soft"),
    "bad": (*SURFACES, "bad-soft"),
    "busy": (*SURFACES, "busy-soft"),
    "off": (*SURFACES, "off-soft"),
}
#: what is not text but has to be seen: the edge of a field, the focus ring
GRAPHIC = {"control": ("surface", "bg"), "focus": SURFACES}


def tokens(theme: str) -> dict[str, str]:
    text = (CSS / "tokens.css").read_text()
    return {name: light if theme == "light" else dark for name, light, dark in TOKEN.findall(text)}


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def too_weak(theme: str, pairs: dict[str, tuple[str, ...]], least: float) -> list[str]:
    colours = tokens(theme)
    return [
        f"{front} on {back}: {contrast(colours[front], colours[back]):.2f}"
        for front, backs in pairs.items()
        for back in backs
        if contrast(colours[front], colours[back]) < least
    ]


def test_contrast_is_computed_as_wcag_does():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_the_contrast_of_aa(theme):
    assert too_weak(theme, TEXT, 4.5) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_edges_and_focus_rings_are_seen(theme):
    assert too_weak(theme, GRAPHIC, 3) == []


def test_every_colour_that_text_takes_is_checked():
    used = set()
    for path in CSS.glob("*.css"):
        used |= set(re.findall(r"(?<![-\w])color: var\(--([a-z-]+)\)", path.read_text()))
    assert used <= set(TEXT)


def test_no_colour_is_written_outside_the_tokens():
    for name in ("base", "layout", "components"):
        text = (CSS / f"{name}.css").read_text()
        allowed = {"#fff", "#0008", "#0007"}  # paper behind a QR code, shade behind dialogs
        assert set(re.findall(r"#[0-9a-fA-F]{3,8}\b(?=[;\s,)])", text)) <= allowed
