"""The body of a request: JSON that can be stored."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from django.utils.translation import gettext as _
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser
from rest_framework.renderers import JSONRenderer

#: deeper than any body the API asks for
DEPTH = 32


class StrictJSONParser(BaseParser):
    """JSON in UTF-8. Refuses what PostgreSQL cannot hold (NUL, lone surrogates), NaN, doubled names."""

    media_type = "application/json"
    renderer_class = JSONRenderer

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        raw = stream.read()
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ParseError(_("The body is not UTF-8 text.")) from None
        try:
            value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_doubles)
        except RecursionError:
            raise ParseError(_("The JSON in the body is nested too deeply.")) from None
        except json.JSONDecodeError as error:
            raise ParseError(
                _("The body is not valid JSON: line %(line)d, column %(column)d.")
                % {"line": error.lineno, "column": error.colno}
            ) from None
        except ValueError:
            # int() refuses numbers of thousands of digits
            raise ParseError(_("The JSON in the body has a number that is too long.")) from None
        _check(value, DEPTH)
        return value


def _no_constant(name: str) -> NoReturn:
    raise ParseError(_("%(name)s is not a JSON value.") % {"name": name})


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _value in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise ParseError(
            _("The name “%(name)s” is there twice in one JSON object.") % {"name": _shown(double)}
        )
    return result


def _check(value: Any, depth: int) -> None:
    if depth == 0:
        raise ParseError(_("The JSON in the body is nested too deeply."))
    if isinstance(value, str):
        if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise ParseError(_("The body has characters that are not text (NUL or half a surrogate pair)."))
    elif isinstance(value, dict):
        for name, inner in value.items():
            _check(name, depth)
            _check(inner, depth - 1)
    elif isinstance(value, list):
        for inner in value:
            _check(inner, depth - 1)


def _shown(name: str) -> str:
    return name.encode(errors="replace").decode()[:60]
