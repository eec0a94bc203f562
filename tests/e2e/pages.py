"""What holds on every page: axe finds nothing, nothing sticks out, the browser does not complain.

``check_page(page)`` looks at the page as it is now, at 1440 and 390 px, light and dark (where the colours
alone differ, so that there axe looks at contrast only). With
KVADMIN_TEST_SHOTS naming a folder it also leaves four pictures there.
"""

from __future__ import annotations

import os
from pathlib import Path

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import ConsoleMessage, Page, Request

WIDTHS = {"wide": (1440, 900), "phone": (390, 844)}
THEMES = ("light", "dark")
#: what axe is asked for: WCAG 2.2 A and AA, and its best practices
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
COLOUR_RULES = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}


class Watched:
    """Collects what the browser complains of while a page is used."""

    def __init__(self, page: Page):
        self.complaints: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("requestfailed", self._failed)
        self.expected_statuses: set[int] = set()
        page.watched = self  # type: ignore[attr-defined]

    def _console(self, message: ConsoleMessage) -> None:
        if message.type not in {"error", "warning"}:
            return
        # the same for a request that htmx gave up for a newer one
        if message.text.startswith(("htmx:sendAbort", "htmx:afterRequest")):
            return
        if any(f"status of {status}" in message.text for status in self.expected_statuses):
            return
        self.complaints.append(f"{message.type}: {message.text}")

    def _failed(self, request: Request) -> None:
        # a request that a navigation cut off is no failure
        if request.failure and "ERR_ABORTED" not in request.failure:
            self.complaints.append(f"{request.url}: {request.failure}")

    def assert_quiet(self) -> None:
        assert not self.complaints, "\n".join(self.complaints)


def violations(page: Page, rules: dict[str, object] = RULES) -> list[str]:
    """axe's findings: rule, help and the elements, one text each."""
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(AXE_SCRIPT)
    found = page.evaluate(
        "(rules) => axe.run(document, rules).then((all) => all.violations)",
        {**rules, "resultTypes": ["violations"]},
    )
    return [
        f"{item['id']}: {item['help']}\n"
        + "\n".join(
            f"    {node['html'][:200]}\n      {node.get('failureSummary', '')}" for node in item["nodes"]
        )
        for item in found
    ]


def sticking_out(page: Page) -> list[str]:
    """Elements past the right edge of a page that scrolls sideways; empty if it does not."""
    return page.evaluate(
        """() => {
          const width = document.documentElement.clientWidth;
          if (document.documentElement.scrollWidth <= width) return [];
          return [...document.body.querySelectorAll('*')]
            .filter((e) => e.getBoundingClientRect().right > width + 1)
            .slice(0, 5).map((e) => e.outerHTML.slice(0, 160));
        }"""
    )


def shoot(page: Page, name: str) -> None:
    folder = os.environ.get("KVADMIN_TEST_SHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def check_page(page: Page, name: str = "page") -> None:
    """Fail with every finding of the four views at once."""
    findings: list[str] = []
    before = page.viewport_size
    for width, (pixels, height) in WIDTHS.items():
        page.set_viewport_size({"width": pixels, "height": height})
        for theme in THEMES:
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            # Chromium keeps an inherited light-dark() colour of the former theme here and there when a page
            # changes its theme while it is open: make it work out every style anew
            page.evaluate(
                "() => { const root = document.documentElement; root.hidden = true; "
                "root.getBoundingClientRect(); root.hidden = false; }"
            )
            # on a busy machine a colour may still be on its way from the other theme
            page.evaluate(
                "() => new Promise(requestAnimationFrame).then(() => Promise.all("
                "document.getAnimations().map((animation) => animation.finished.catch(() => null))))"
                ".then(() => true)"
            )
            rules = RULES if theme == "light" else COLOUR_RULES
            where = f"{name}, {width}, {theme}"
            findings += [f"{where}: {text}" for text in violations(page, rules)]
            findings += [f"{where}: sticks out: {text}" for text in sticking_out(page)]
            shoot(page, f"{name}-{width}-{theme}")
    page.emulate_media(color_scheme="light")
    if before:
        page.set_viewport_size(before)
    assert not findings, "\n".join(findings)
    page.watched.assert_quiet()  # type: ignore[attr-defined]
