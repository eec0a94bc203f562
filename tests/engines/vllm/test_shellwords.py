"""Text is split as a shell splits it; what a shell would do besides is left out, and said."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engines.vllm.notes import Severity
from engines.vllm.shellwords import split_words

argument = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0\r"), max_size=30)


def codes(text: str) -> set[str]:
    return {note.code for note in split_words(text).notes}


@given(st.lists(argument, max_size=8))
def test_it_gives_back_what_was_quoted(words):
    split = split_words(shlex.join(words))
    assert split.texts == words
    assert split.notes == []


@given(
    st.lists(
        st.text(alphabet="abcXYZ019 \"'\\=-_./:{}[],\n", max_size=25).map(lambda text: text.strip()),
        max_size=5,
    )
)
@settings(max_examples=150, deadline=None)
def test_it_splits_like_a_posix_shell(parts):
    text = " ".join(parts)
    # a line that goes on: a shell takes both characters away, shlex only the first
    assume("\\\n" not in text)
    ours = split_words(text)
    if any(note.severity is Severity.ERROR or "mended" in note.code for note in ours.notes):
        return
    # a bare line break ends a command in a shell; between words it is a blank here
    flat = shlex.split(text)
    assert ours.texts == flat


def test_it_agrees_with_a_real_shell():
    text = r"""--a 'b c' --d="e \"f\" \x" g\ h --i ''  --j=k'l'"m" --n=o\
p "q\
r" """
    printed = subprocess.run(
        ["/bin/sh", "-c", f"printf '%s\\0' {text}"], capture_output=True, check=True
    ).stdout.decode()
    assert split_words(text).texts == printed.split("\0")[:-1]


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [("--a 'b", 1, 5), ('--a "b c', 1, 5), ("--a 1 \\\n --b 'x", 2, 6), ("--a “b", 1, 5)],
)
def test_it_says_where_a_quote_was_opened(text, line, column):
    (note,) = [note for note in split_words(text).notes if note.severity is Severity.ERROR]
    assert note.code == "open_quote"
    assert (note.params["line"], note.params["column"]) == (line, column)
    assert "not closed" in note.text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--a 1 \\ --b 2 \\ --c", ["--a", "1", "--b", "2", "--c"]),
        ("--a 1\\ --b 2", ["--a", "1", "--b", "2"]),
        ("--a 1 \\  \n  --b 2", ["--a", "1", "--b", "2"]),
        ("--a 1\\\n--b 2", ["--a", "1", "--b", "2"]),
    ],
)
def test_it_mends_line_breaks_from_web_pages(text, words):
    split = split_words(text)
    assert split.texts == words
    assert "line_breaks_mended" in {note.code for note in split.notes}


def test_it_takes_proper_line_continuations_silently():
    split = split_words("--a 1 \\\n  --b 2 \\\r\n  --c")
    assert split.texts == ["--a", "1", "--b", "2", "--c"]
    assert split.notes == []


def test_it_keeps_an_escaped_blank_inside_a_word():
    assert split_words(r"--path /data/my\ model").texts == ["--path", "/data/my model"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("—max-model-len 5", ["--max-model-len", "5"]),
        ("–max–model–len=5", ["--max-model-len=5"]),
        ("–tp 2", ["-tp", "2"]),
        ("‑‑seed –1", ["--seed", "-1"]),
        ('—a="x — y"', ["--a=x — y"]),
    ],
)
def test_it_mends_long_dashes_of_flags(text, words):
    split = split_words(text)
    assert split.texts == words
    assert "dashes_mended" in {note.code for note in split.notes}


def test_it_mends_curly_quotes_but_not_those_inside_straight_ones():
    assert split_words("--a “x y” ‘z’").texts == ["--a", "x y", "z"]
    assert codes("--a “x y”") == {"quotes_mended"}
    assert split_words("--a '“x”'").texts == ["--a", "“x”"]
    assert codes("--a '“x”'") == set()


def test_it_reads_special_blanks_as_blanks():
    assert split_words("--a\u00a01\u3000--b\u200b 2").texts == ["--a", "1", "--b", "2"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("--a $HOME", "literal_dollar"),
        ('--a "${HOME}"', "literal_dollar"),
        ("--a $(id)", "literal_dollar"),
        ("--a `id`", "literal_backtick"),
        ("--a 1; rm", "literal_operator"),
        ("--a 1 | tee", "literal_operator"),
        ("--a 1 > log", "literal_operator"),
        ("--a ~/m", "literal_tilde"),
    ],
)
def test_it_leaves_what_a_shell_would_act_on_and_warns(text, code):
    split = split_words(text)
    assert code in {note.code for note in split.notes if note.severity is Severity.WARNING}
    assert "".join(split.texts) == text.replace(" ", "").replace('"', "")


@pytest.mark.parametrize("text", ["--a '$HOME; `id` ~'", r"--a \$HOME"])
def test_it_does_not_warn_about_what_is_quoted(text):
    assert codes(text) == set()


def test_it_leaves_comments_out():
    split = split_words("--a 1 # --b 2\n--c a#b")
    assert split.texts == ["--a", "1", "--c", "a#b"]
    assert "comment_left_out" in {note.code for note in split.notes}


@pytest.mark.parametrize("text", ["--a 1\0 2", "--a '\0'", '--a "\ud800"'])
def test_it_refuses_what_no_argument_can_hold(text):
    assert codes(text) == {"unusable_character"}
