"""Sentences about an action's input, by field."""

from __future__ import annotations

from kvadmin.actions.base import Invalid


class Mistakes:
    """Collects sentences by field and raises them together."""

    def __init__(self) -> None:
        self.errors: dict[str, list[str]] = {}

    def add(self, field: str, sentence: str) -> None:
        self.errors.setdefault(field, []).append(sentence)

    def refuse(self) -> None:
        """Raise Invalid if there is any mistake."""
        if self.errors:
            first = next(iter(self.errors))
            raise Invalid(self.errors[first][0], field=first, errors=self.errors)
