"""HTML as text: one escape for everything that is not markup, elements, tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape as _escape

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_INTERVAL = re.compile(r"\[[^\s\]]+, [^\s\]]+\]")
_LONG = 40
"""Characters from which on a column of text is kept from getting narrow."""
_NUMBER = re.compile(r"[+-]?(\d[\d.e+-]*%?|inf)|n/a")


def escape(text: object) -> str:
    """``str(text)`` as it may stand in an element or a quoted attribute.

    Control characters and halves of surrogate pairs (file names hold them) become U+FFFD.

    >>> escape('<a href="x">')
    '&lt;a href=&quot;x&quot;&gt;'
    """
    whole = str(text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _escape(_CONTROL.sub("\ufffd", whole), quote=True)


def element(tag: str, *content: str, **attributes: object) -> str:
    """``<tag ...>content</tag>``; content is markup, attribute values are escaped.

    ``_`` in a name stands for ``-``, one at its end is dropped.

    >>> element("rect", class_="bar", stroke_width=2)
    '<rect class="bar" stroke-width="2"></rect>'
    """
    pairs = "".join(f' {name.rstrip("_").replace("_", "-")}="{escape(v)}"' for name, v in attributes.items())
    return f"<{tag}{pairs}>{''.join(content)}</{tag}>"


def paragraph(text: str, **attributes: object) -> str:
    """Escaped text as a paragraph."""
    return element("p", escape(text), **attributes)


def items(texts: Sequence[tuple[str, str]]) -> str:
    """A list of ``name: text``."""
    lines = (element("li", element("b", escape(name)), ": ", escape(text)) for name, text in texts)
    return element("ul", *lines)


def table(rows: Sequence[Sequence[str]], caption: str) -> str:
    """A table of plain text, its header first, in a box that scrolls by itself; numbers are right-aligned."""
    return markup_table([[escape(_unbroken(cell)) for cell in row] for row in rows], caption)


def markup_table(rows: Sequence[Sequence[str]], caption: str) -> str:
    """A `table` whose cells are markup."""
    header, *body = rows
    numeric = [bool(body) and all(_NUMBER.fullmatch(row[i]) or not row[i] for row in body) for i in range(len(header))]
    long = [any(len(row[i]) > _LONG and "<" not in row[i] for row in body) for i in range(len(header))]
    classes = ["number" if n else "long" if wide else "" for n, wide in zip(numeric, long, strict=True)]
    head = [element("th", cell, scope="col", **css_class(c)) for cell, c in zip(header, classes, strict=True)]
    lines = [
        element(
            "tr",
            element("th", row[0], scope="row"),
            *(element("td", cell, **css_class(c)) for cell, c in zip(row[1:], classes[1:], strict=True)),
        )
        for row in body
    ]
    grid = element(
        "table",
        element("caption", escape(caption)),
        element("thead", element("tr", *head)),
        element("tbody", *lines),
    )
    return element("div", grid, class_="scroll", tabindex=0, role="region", aria_label=caption)


def _unbroken(cell: str) -> str:
    """An interval stays on one line."""
    return _INTERVAL.sub(lambda found: found[0].replace(" ", "\u00a0"), cell)


def css_class(name: str) -> dict[str, str]:
    """The attribute of an `element`, if there is a class."""
    return {"class_": name} if name else {}
