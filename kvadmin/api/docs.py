"""The OpenAPI document and its page, for people who are signed in."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.auth.mixins import LoginRequiredMixin
from django.views.generic import TemplateView
from drf_spectacular.views import SpectacularAPIView
from rest_framework.permissions import IsAuthenticated


class SchemaView(SpectacularAPIView):
    """OpenAPI 3 as YAML, or as JSON where the header Accept prefers it."""

    schema = None
    permission_classes: ClassVar = [IsAuthenticated]


class DocsPage(LoginRequiredMixin, TemplateView):
    template_name = "api/docs.html"
