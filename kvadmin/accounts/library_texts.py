"""Texts that libraries show here and do not translate themselves: named so that our catalogues have them."""

from __future__ import annotations

from django.utils.translation import ngettext_lazy

#: Django's MinimumLengthValidator
PASSWORD_TOO_SHORT = ngettext_lazy(
    "This password is too short. It must contain at least %d character.",
    "This password is too short. It must contain at least %d characters.",
)
