"""Permission of a request: the token's scope, then kvadmin.policies by the view's action."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from kvadmin import policies
from kvadmin.api.problems import Problem
from kvadmin.models.token import ManagementToken, TokenScope


class MayDo(BasePermission):
    """Refuses anonymous callers (401), read tokens on writing methods and missing roles (403).

    The view names a permission for each of its actions in ``permissions``.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        if not request.user.is_authenticated:
            return False
        token = request.auth
        if (
            isinstance(token, ManagementToken)
            and token.scope != TokenScope.WRITE
            and request.method not in SAFE_METHODS
            and view.action not in view.reading_actions
        ):
            raise Problem(
                _("This management token may only read."),
                status=403,
                code="token_scope",
                remedy=_("Make a token with the scope “read and write” for this."),
            )
        permission = view.permission_needed()
        if permission is None or policies.allows(request.user, permission):
            return True
        raise Problem(
            _("You may not do this."),
            status=403,
            code="permission_denied",
            remedy=policies.whom_to_ask(permission),
        )
