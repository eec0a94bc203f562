"""Whether people's passwords and keys pass over a network unencrypted."""

from __future__ import annotations

from django.conf import settings
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


def exposure_warning() -> Promise | None:
    """The sentence for every page and every start, or None when there is nothing to warn of."""
    if not settings.KVADMIN_EXPOSED:
        return None
    return _(
        "kvadmin listens beyond this machine without encryption: passwords and keys can be read on the way. "
        "Set KVADMIN_TLS_CERT and KVADMIN_TLS_KEY, or put a proxy with TLS in front and name it in "
        "KVADMIN_TRUSTED_PROXIES."
    )
