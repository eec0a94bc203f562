"""Addresses of the management API, /api/manage/v1/. Each is served with and without a final slash."""

from django.urls import include, path, re_path
from rest_framework.routers import SimpleRouter

from engines.api import urls as engines
from kvadmin.api.base import NotHere
from kvadmin.api.docs import DocsPage, SchemaView
from kvadmin.api.people import AuditViewSet, UserViewSet
from kvadmin.api.system import VersionViewSet
from kvadmin.api.tokens import TokenViewSet
from routes.api import urls as routes

app_name = "manage"

router = SimpleRouter()
router.trailing_slash = "/?"
engines.register(router)
routes.register(router)
router.register("tokens", TokenViewSet, basename="token")
router.register("users", UserViewSet, basename="user")
router.register("audit", AuditViewSet, basename="audit")

_every = ["get", "post", "put", "patch", "delete", "options", "head"]

urlpatterns = [
    re_path(r"^schema/?$", SchemaView.as_view(), name="schema"),
    re_path(r"^docs/?$", DocsPage.as_view(), name="docs"),
    re_path(r"^system/version/?$", VersionViewSet.as_view({"get": "version"}), name="version"),
    path("", include(router.urls)),
    re_path(r"^.*$", NotHere.as_view(dict.fromkeys(_every, "answer"))),
]
