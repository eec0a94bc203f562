"""Choices that know how they look: a tone belongs to the choice, never to a template."""

from __future__ import annotations

from django.db import models


class TonedChoices(models.TextChoices):
    """Text choices whose members carry a tone: ok, warn, bad, busy or off.

    A subclass defines ``_tones()``; a member that it leaves out is ``off``.
    """

    @classmethod
    def _tones(cls) -> dict[str, str]:
        return {}

    @property
    def tone(self) -> str:
        return self._tones().get(self.value, "off")
