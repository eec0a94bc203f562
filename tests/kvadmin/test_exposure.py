"""Listening beyond loopback without encryption warns at the start and on every page."""

from __future__ import annotations

from django.core.checks import run_checks

from kvadmin.exposure import exposure_warning


def test_it_warns_when_exposed(settings):
    settings.KVADMIN_EXPOSED = True
    assert "without encryption" in str(exposure_warning())
    assert "kvadmin.W001" in {message.id for message in run_checks()}


def test_it_is_silent_otherwise():
    assert exposure_warning() is None
    assert "kvadmin.W001" not in {message.id for message in run_checks()}


def test_it_warns_of_debug(settings):
    settings.DEBUG = True
    assert "kvadmin.W002" in {message.id for message in run_checks()}
