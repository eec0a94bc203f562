"""The parts of signing in that allauth does not do the way a strict page policy needs."""

from __future__ import annotations

import requests
from allauth.socialaccount.providers.openid_connect import views as oidc
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from kvadmin.accounts.adapters import refuse


@never_cache
def begin_oidc(request: HttpRequest, provider_id: str) -> HttpResponse:
    """POST: to the provider's sign-in page.

    The answer is a page that moves on by itself: a redirect would fall under the policy's
    ``form-action``, which would have to name every address the provider forwards to.
    """
    if request.method != "POST":
        return redirect("account_login")
    next_url = request.POST.get("next", "")
    request.GET = QueryDict(mutable=True)
    request.POST = QueryDict(mutable=True)
    if next_url:
        request.POST["next"] = next_url
    try:
        response = oidc.login(request, provider_id)
    except (requests.RequestException, KeyError, ValueError):
        return refuse(
            request,
            _(
                "The sign-in provider does not answer as it should. Sign in with a password, or try again "
                "later; an administrator can test the provider on the page for sign-in by OpenID Connect."
            ),
        )
    if isinstance(response, HttpResponseRedirect):
        return render(request, "socialaccount/login_redirect.html", {"redirect_to": response.url})
    return response


@login_required
def no_password(request: HttpRequest) -> HttpResponse:
    """Shown to a person who signs in through the provider and asks to change a password."""
    return render(request, "account/no_password.html")
