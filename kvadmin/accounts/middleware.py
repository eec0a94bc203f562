"""Per request: the person's language, and nowhere else to go while a new password is due."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext as _

from kvadmin.api.problems import MEDIA_TYPE, problem_body


class AccountLanguageMiddleware:
    """The language kept with the account goes before the browser's; after AuthenticationMiddleware."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        language = getattr(request.user, "language", "") if request.user.is_authenticated else ""
        if language and language in dict(settings.LANGUAGES):
            translation.activate(language)
            request.LANGUAGE_CODE = translation.get_language()
        return self.get_response(request)


class NewPasswordMiddleware:
    """Whoever signed in with a one-time password can only change it or sign out."""

    allowed = ("account_change_password", "account_logout", "kvadmin:set_language", "kvadmin:set_theme")

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        user = request.user
        if not (user.is_authenticated and user.must_change_password and user.has_usable_password()):
            return self.get_response(request)
        if request.path in {reverse(name) for name in self.allowed}:
            return self.get_response(request)
        target = reverse("account_change_password")
        if request.path.startswith("/api/"):
            body = problem_body(
                403,
                "new_password_due",
                _("A new password is due."),
                _("Set a new password in the console first."),
            )
            return JsonResponse(body, status=403, content_type=MEDIA_TYPE)
        if getattr(request, "htmx", False):
            response = HttpResponse()
            response["HX-Redirect"] = target
            return response
        return HttpResponseRedirect(target)
