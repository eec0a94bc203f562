"""What serializers of the management API have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from rest_framework import serializers

from kvadmin.api.names import unknown_name


class StrictSerializer(serializers.Serializer):
    """Refuses fields that it does not know, with the name that was probably meant."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            writable = {name for name, field in self.fields.items() if not field.read_only}
            errors = {
                str(name): [unknown_name(str(name), writable, _("There is no field “%(name)s” to set here."))]
                for name in data
                if name not in writable
            }
            if errors:
                try:
                    super().to_internal_value(data)
                except serializers.ValidationError as error:
                    errors = {**error.detail, **errors}
                raise serializers.ValidationError(errors)
        return super().to_internal_value(data)


class ProblemSerializer(serializers.Serializer):
    """An error (RFC 9457)."""

    type = serializers.CharField(
        help_text="A URI of this kind of problem: urn:kvadmin:problem: and the code."
    )
    title = serializers.CharField(help_text="What the status means, in words.")
    status = serializers.IntegerField(help_text="The HTTP status.")
    detail = serializers.CharField(help_text="What is wrong, in a sentence.")
    code = serializers.CharField(help_text="What is wrong, for programs. Stable.")
    remedy = serializers.CharField(allow_blank=True, help_text="What to do about it, in a sentence.")
    errors = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField()),
        help_text="Field or parameter to its sentences; empty when no field is to blame.",
    )


class EmptySerializer(StrictSerializer):
    """A body without fields."""
