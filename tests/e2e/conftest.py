"""A real browser against a live server; see tests/e2e/pages.py for what is checked on every page."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import Browser, Page, expect, sync_playwright

from kvadmin.models import User
from tests.e2e.pages import Watched

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


# a busy machine is no failure: waiting ends when what is waited for is there
expect.set_options(timeout=30_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("browser") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(400))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    # Playwright keeps an event loop in this thread; the ORM calls of the tests beside it are no mistake
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def page(browser: Browser, transactional_db: None, live_server) -> Iterator[Page]:
    """A fresh browser context, signed out; ``page.goto("/path")`` is enough. What the browser complains
    of (errors, blocked by the policy, failed requests) fails the test at its end.
    """
    context = browser.new_context(base_url=live_server.url, viewport={"width": 1440, "height": 900})
    context.set_default_timeout(60_000)
    page = context.new_page()
    watched = Watched(page)
    yield page
    context.close()
    watched.assert_quiet()


@pytest.fixture
def sign_in_as(page: Page, live_server) -> Callable[[User], Page]:
    """Give the browser a session of a user, without the sign-in page."""

    def sign_in(user: User) -> Page:
        client = Client()
        client.force_login(user)
        page.context.add_cookies(
            [
                {
                    "name": settings.SESSION_COOKIE_NAME,
                    "value": client.cookies[settings.SESSION_COOKIE_NAME].value,
                    "url": live_server.url,
                }
            ]
        )
        return page

    return sign_in
