"""Text of others: visible, on one line, and text in every medium."""

import html
import re

import pytest

from trace.escaping import cell_text, markdown_text, one_line, printable


def test_what_cannot_be_printed_is_marked():
    assert printable("a\x00b\x9f\udcff\ud83d\ude00\n\t\u00e9") == "a\ufffdb\ufffd\ufffd\U0001f600\n\t\u00e9"


def test_one_line_stays_one_line_in_one_direction():
    for end in ("\n", "\r", "\r\n", "\x0b", "\x85", "\u2028", "\u2029"):
        assert one_line(f"a{end}ACCEPT") == "a ACCEPT"
    assert one_line("a\u202etxt.exe\u2066b") == "a\ufffdtxt.exe\ufffdb"
    assert one_line("\x1b]0;title\x07\x1b[31mred") == "\ufffd]0;title\ufffd\ufffd[31mred"


@pytest.mark.parametrize(
    "text",
    [
        "![x](https://example.org/a.png)",
        "[click](javascript:alert)",
        "<img src=x onerror=alert(1)>",
        "`code` **bold** _slanted_ ~~gone~~ #1 @someone",
        "a | b | c",
        "www.example.org and https://example.org",
        "$x^2$ &lt;",
    ],
)
def test_markdown_shows_the_text_itself(text):
    """Taking the backslashes off, as Markdown does for punctuation, gives it back; nothing is left that it reads."""
    escaped = markdown_text(text)
    assert re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", escaped) == text
    bare = re.sub(r"\\[!-/:-@\[-`{-~]", "", escaped)
    assert not re.search(r"[`*<>\[\]|#@~&$]|://|www\.", bare)
    assert html.unescape(bare) == bare


def test_words_of_ours_stay_as_they_are():
    for text in ("anchor_disagreement is 1.2%, at most 5% (--source-val, target_val)", "core / 3.5e-05; see a/b.csv"):
        assert markdown_text(text) == text


def test_a_cell_is_no_formula():
    for text in ("=1+1", "+cmd|x", "-2+3", "@sum(a)", "\t=1", "'=1", "--1", "+"):
        assert cell_text(text) == f"'{one_line(text)}"
    for text in ("-3.5", "+1e-5", "-.5", "12", "a=b", "", "x/y-1.png"):
        assert cell_text(text) == text
