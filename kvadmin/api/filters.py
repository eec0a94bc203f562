"""Filters of lists, by django-filter; a wrong value is a problem that names the parameter."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework.request import Request


class ListFilter(DjangoFilterBackend):
    """Filters the list only: a row that is asked for by its id is there or it is not."""

    def filter_queryset(self, request: Request, queryset: QuerySet, view: Any) -> QuerySet:
        if view.action != "list":
            return queryset
        return super().filter_queryset(request, queryset, view)
