"""Text to words the way a shell splits it, without a shell: nothing is expanded or run.

What a shell would act on ($, backticks, ``;`` and so on) stays as it is and is warned about. Damage
from web pages and word processors (curly quotes, long dashes, no-break spaces, line breaks that became
backslash-blank) is mended, and said.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from engines.vllm import catalog
from engines.vllm.fields import is_surrogate
from engines.vllm.notes import Note, error, gettext_noop, info, warning

_CURLY_DOUBLE = "“”„‟″＂«»"
_CURLY_SINGLE = "‘’‚‛′＇"
_LONG_DASHES = "‒–—―﹘"
_DASHES = _LONG_DASHES + "‐‑−﹣－"
_BLANKS = (
    "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000\t\v\f"
)
_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff\u00ad"
_OPERATORS = ";|&<>()"


@dataclass(frozen=True)
class Word:
    """One word; ``start`` is where it begins in the text; ``operators`` are unquoted ; | & < > ( ) in it."""

    text: str
    start: int
    operators: str = ""
    quoted: bool = False


@dataclass
class Split:
    words: list[Word] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        return [word.text for word in self.words]


def split_words(text: str, *, field: str = "extra_arguments") -> Split:
    """Split text into words. Errors (an open quote, a NUL) are notes with their place; words before
    the error are given all the same."""
    return _Splitter(text.replace("\r\n", "\n").replace("\r", "\n"), field).run()


class _Splitter:
    def __init__(self, text: str, field: str):
        self.text = text
        self.field = field
        self.position = 0
        self.result = Split()
        self.letters: list[str] | None = None
        self.start = 0
        self.operators = ""
        self.quoted_at: int | None = None
        self.said: set[str] = set()

    def run(self) -> Split:
        bad = next(
            (at for at, letter in enumerate(self.text) if letter == "\0" or is_surrogate(letter)), None
        )
        if bad is not None:
            self.say(
                error(
                    "unusable_character",
                    gettext_noop("Line %(line)d, column %(column)d holds a character no argument can hold."),
                    remedy=gettext_noop("Type the text again instead of pasting it."),
                    field=self.field,
                    **self.place(bad),
                )
            )
            return self.result
        while self.position < len(self.text):
            if not self.step():
                self.end_word()
                return self.result
        self.end_word()
        return self.result

    # what is said, each thing once

    def say(self, note: Note) -> None:
        if note.code not in self.said:
            self.said.add(note.code)
            self.result.notes.append(note)

    def mended(self, code: str, message: str) -> None:
        self.say(info(code, message, field=self.field))

    def place(self, position: int) -> dict[str, int]:
        before = self.text[:position]
        return {"line": before.count("\n") + 1, "column": position - (before.rfind("\n") + 1) + 1}

    # words

    def add(self, letters: str) -> None:
        if self.letters is None:
            self.letters = []
            self.start = self.position
        self.letters.append(letters)

    def end_word(self) -> None:
        if self.letters is None:
            return
        text = "".join(self.letters)
        plain = text if self.quoted_at is None else text[: self.quoted_at]
        if self.quoted_at is None or "=" in plain:
            text = self.mend_dashes(plain) + text[len(plain) :]
        self.result.words.append(Word(text, self.start, self.operators, self.quoted_at is not None))
        self.letters, self.operators, self.quoted_at = None, "", None

    def quote_from_here(self) -> None:
        if self.quoted_at is None:
            self.quoted_at = len("".join(self.letters or ()))

    def mend_dashes(self, text: str) -> str:
        """Dash-like characters before a flag's name, and in it, become hyphens; a long one before it
        was ``--`` once, unless only the short flag of that name exists."""
        name, equals, value = text.partition("=")
        body = name.lstrip(_DASHES + "-")
        lead = name[: len(name) - len(body)]
        if not lead or not any(dash in name for dash in _DASHES):
            return text
        for dash in _DASHES:
            body = body.replace(dash, "-")
        hyphens = min(2, sum(2 if dash in _LONG_DASHES else 1 for dash in lead))
        number = re.fullmatch(r"\d+(\.\d+)?", body) is not None
        short = (
            len(lead) == 1 and f"-{body}" in catalog.spellings() and f"--{body}" not in catalog.spellings()
        )
        self.mended("dashes_mended", gettext_noop("A long dash was read as hyphens."))
        return f"{'-' if number or short else '-' * hyphens}{body}{equals}{value}"

    # characters

    def step(self) -> bool:
        character = self.text[self.position]
        if character in " \n" or character in _BLANKS:
            if character in _BLANKS and character != "\t":
                self.mended("blanks_mended", gettext_noop("A special blank was read as a plain one."))
            self.end_word()
        elif character in _INVISIBLE:
            self.mended("invisible_removed", gettext_noop("An invisible character was taken out."))
        elif character == "\\":
            self.backslash()
            return True
        elif character == "'" or character in _CURLY_SINGLE:
            return self.single_quote(character)
        elif character == '"' or character in _CURLY_DOUBLE:
            return self.double_quote(character)
        elif character == "#" and self.letters is None:
            return self.comment()
        else:
            self.plain(character)
        self.position += 1
        return True

    def plain(self, character: str) -> None:
        following = self.text[self.position + 1 : self.position + 2]
        if character == "$" and (following.isalnum() or following in tuple("_{('\"@*#?$!")):
            self.warn_literal("dollar", gettext_noop("“$” is not expanded: the text stays as it is written."))
        elif character == "`":
            self.warn_literal("backtick", gettext_noop("A backtick runs nothing here: it stays in the text."))
        elif character in _OPERATORS:
            self.operators += character
            self.warn_literal(
                "operator",
                gettext_noop(
                    "“%(character)s” means nothing here: no shell reads this, it stays in the text."
                ),
                character=character,
            )
        elif character == "~" and self.letters is None:
            self.warn_literal(
                "tilde", gettext_noop("“~” is not expanded: write the whole path of the folder.")
            )
        self.add(character)

    def warn_literal(self, code: str, message: str, **params: str) -> None:
        self.say(warning(f"literal_{code}", message, field=self.field, **params))

    def comment(self) -> bool:
        self.mended("comment_left_out", gettext_noop("What follows “#” on a line is a comment and left out."))
        end = self.text.find("\n", self.position)
        self.position = len(self.text) if end < 0 else end
        return True

    def backslash(self) -> None:
        rest = self.text[self.position + 1 :]
        blanks = len(rest) - len(rest.lstrip(" " + _BLANKS))
        after = rest[blanks : blanks + 1]
        if not rest.strip(" \n" + _BLANKS):
            # at the end: a continuation of nothing
            self.mended("backslash_mended", gettext_noop("A backslash at the end was taken out."))
            self.position = len(self.text)
        elif after == "\n":
            if blanks:
                self.mended_break()
            line = rest[blanks + 1 :]
            # a shell would glue the two lines; before a flag that is never what was meant
            if self.letters is not None and line[:1] in tuple("-" + _DASHES):
                self.mended_break()
                self.end_word()
            self.position += blanks + 2
        elif blanks and (self.letters is None or after in tuple("-" + _DASHES)):
            self.mended_break()
            self.end_word()
            self.position += 1 + blanks
        else:
            self.quote_from_here()
            self.add(rest[0])
            self.position += 2

    def mended_break(self) -> None:
        self.mended(
            "line_breaks_mended",
            gettext_noop("Backslashes followed by a blank were read as line breaks, as on web pages."),
        )

    def single_quote(self, opening: str) -> bool:
        closing = "'" if opening == "'" else _CURLY_SINGLE + "'"
        ends = [self.text.find(mark, self.position + 1) for mark in closing]
        end = min((place for place in ends if place >= 0), default=-1)
        if opening != "'":
            self.mended_quotes()
        if end < 0:
            return self.open_quote(opening)
        self.quote_from_here()
        self.add(self.text[self.position + 1 : end])
        self.position = end + 1
        return True

    def double_quote(self, opening: str) -> bool:
        closing = '"' if opening == '"' else _CURLY_DOUBLE + '"'
        if opening != '"':
            self.mended_quotes()
        begin, self.position = self.position, self.position + 1
        letters: list[str] = []
        while self.position < len(self.text):
            character = self.text[self.position]
            following = self.text[self.position + 1 : self.position + 2]
            if character in closing:
                self.position, end = begin, self.position
                self.quote_from_here()
                self.add("".join(letters))
                self.position = end + 1
                return True
            if character == "\\" and following in tuple('$`"\\\n'):
                letters.append("" if following == "\n" else following)
                self.position += 2
                continue
            if character == "`" or (character == "$" and (following.isalnum() or following in tuple("_{("))):
                self.warn_literal(
                    "dollar", gettext_noop("“$” is not expanded: the text stays as it is written.")
                )
            letters.append(character)
            self.position += 1
        self.position = begin
        return self.open_quote(opening)

    def mended_quotes(self) -> None:
        self.mended("quotes_mended", gettext_noop("Curly quotes were read as straight ones."))

    def open_quote(self, opening: str) -> bool:
        self.say(
            error(
                "open_quote",
                gettext_noop("The quote %(quote)s at line %(line)d, column %(column)d is not closed."),
                remedy=gettext_noop("Close it, or put a backslash before it."),
                field=self.field,
                quote=opening,
                **self.place(self.position),
            )
        )
        return False
