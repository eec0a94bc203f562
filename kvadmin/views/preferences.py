"""Theme and language: small forms on every page."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path
from django.utils.translation import check_for_language
from django.views.decorators.http import require_POST

from kvadmin.models.user import Theme
from kvadmin.views.base import safe_next, to_sign_in


@require_POST
def set_theme(request: HttpRequest) -> HttpResponse:
    """Keep the person's theme; answers 204 to a module, else goes back to the page."""
    if not request.user.is_authenticated:
        return to_sign_in(request)
    theme = request.POST.get("theme", "")
    if theme in Theme.values:
        request.user.theme = theme
        request.user.save(update_fields=["theme"])
    if request.headers.get("X-Requested-With") == "fetch":
        return HttpResponse(status=204)
    return HttpResponseRedirect(safe_next(request))


@require_POST
def set_language(request: HttpRequest) -> HttpResponse:
    """Keep the language in a cookie, and with the account when signed in."""
    response = HttpResponseRedirect(safe_next(request))
    language = request.POST.get("language", "")
    if language in dict(settings.LANGUAGES) and check_for_language(language):
        remember_language(response, language)
        if request.user.is_authenticated:
            request.user.language = language
            request.user.save(update_fields=["language"])
    return response


def remember_language(response: HttpResponse, language: str) -> None:
    response.set_cookie(
        settings.LANGUAGE_COOKIE_NAME,
        language,
        max_age=365 * 86400,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )


urlpatterns = [
    path("account/theme/", set_theme, name="set_theme"),
    path("account/language/", set_language, name="set_language"),
]
