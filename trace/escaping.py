"""Text from files for people: names, notes and messages of others, made harmless for each medium.

HTML and XML are escaped by their writers; here is what they, terminals, Markdown and spreadsheets share.
"""

import re

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_MARKDOWN = re.compile(r"[\\`*<>\[\]!|#@~&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?<=:)//|(?<=www)\.")
_NUMBER = re.compile(r"[+-]?[0-9]*\.?[0-9]+([eE][+-]?[0-9]+)?")


def printable(text: str) -> str:
    """The text with U+FFFD for control characters and halves of surrogate pairs, which file names hold.

    >>> printable("a\\x00b")
    'a\ufffdb'
    """
    return _CONTROL.sub("\ufffd", text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def one_line(text: str) -> str:
    """Printable on one line, and read in one direction: nothing that follows can be made to look like something else.

    >>> one_line("a\\x1b[2J\\nACCEPT")
    'a\ufffd[2J ACCEPT'
    """
    return _DIRECTION.sub("\ufffd", printable(" ".join(text.split())))


def markdown_text(text: str) -> str:
    """One line that Markdown shows as it is: no image, link, tag, mention, code or table of its own.

    >>> markdown_text("![x](https://example.org/?a_b) <b>@all")
    '\\\\!\\\\[x\\\\](https:\\\\//example.org/?a_b) \\\\<b\\\\>\\\\@all'
    """
    return _MARKDOWN.sub(lambda found: f"\\{found[0]}", one_line(text))


def cell_text(text: str) -> str:
    """One line that a spreadsheet takes for text or a number, and never for a formula.

    >>> cell_text("=1+1"), cell_text("-3.5"), cell_text("a/b.png")
    ("'=1+1", '-3.5', 'a/b.png')
    """
    line = one_line(text)
    return f"'{line}" if line[:1] in ("=", "+", "-", "@", "'") and not _NUMBER.fullmatch(line) else line
