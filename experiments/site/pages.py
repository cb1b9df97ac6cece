"""The pages, from tables, captions of figures and the rows of the ledger: the same input gives the same text.

Words and elements are those of ``templates/*.html.j2``, which escape all that they are given; looks are ``site.css``,
and ``site.js`` filters, sorts and enlarges what can also be read without it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ..claims.ledger import WHOSE
from ..claims.rule import VERDICTS, Verdict
from ..tables.table import Table
from .evidence import Exhibit, LedgerEntry

MARKS: dict[Verdict, str] = {
    "reproduced": "✓",
    "partly": "◐",
    "not reproduced": "✕",
    "contradicts itself": "≠",
    "does not transfer": "⊘",
    "undecided": "?",
    "not run here": "○",
}
"""A shape for every verdict, beside its word and its colour."""
SAID: dict[Verdict, str] = {
    "reproduced": "the rule's condition holds on our records",
    "partly": "a weaker condition holds, or it holds in some of several data sets",
    "not reproduced": "our records decide against it",
    "contradicts itself": "the paper's own numbers or formulas decide against it",
    "does not transfer": "a claim of the paper that fails on other data than the paper's",
    "undecided": "the interval of what we measured holds the rule's threshold",
    "not run here": "no records: it needs data that is not part of this repository",
}
GROUPS: dict[str, tuple[Verdict, ...]] = {
    "Holds": ("reproduced",),
    "Holds in part, or is open": ("partly", "undecided", "not run here"),
    "Does not hold": ("not reproduced", "contradicts itself", "does not transfer"),
}
"""What a reader asks first, by verdict."""
OWNERS = {
    "paper": "what the paper claims",
    "ours": "what the paper takes for granted, or that we ask",
    "other data": "the paper's claims on data sets that it does not use",
}
STATIC = ("site.css", "site.js")


class SiteContent(NamedTuple):
    """Everything that the pages show."""

    entries: Sequence[LedgerEntry]
    headlines: Sequence[str]
    """Names of the claims that stand on the first page."""
    left_out: Table
    tables: Mapping[str, Table]
    table_exhibits: Sequence[Exhibit]
    figures: Sequence[Exhibit]
    experiments: Mapping[str, int]
    """How many records each has."""
    arena: Table | None
    """All scores on the stored cases, best first; None where there are no cases."""
    note: str
    """What is missing of the grids; empty where nothing is."""


def pages(content: SiteContent) -> dict[str, str]:
    """Every page, style sheet and script by its path in the site; links are relative."""
    environment = _environment()
    shared = {
        "content": content,
        "marks": MARKS,
        "verdicts": VERDICTS,
        "said": SAID,
        "whose": WHOSE,
        "owners": OWNERS,
        "counts": Counter((entry.row["whose"], entry.row["verdict"]) for entry in content.entries),
    }

    def page(template: str, path: str, **material: Any) -> str:
        root = "../" * path.count("/")
        return environment.get_template(template).render({**shared, "root": root, "path": path, **material})

    names = {entry.row["name"]: entry for entry in content.entries}
    chosen = [names[name] for name in content.headlines if name in names]
    found = {
        "index.html": page("index.html.j2", "index.html", groups=_grouped(chosen)),
        "ledger.html": page("ledger.html.j2", "ledger.html", sections=_by_section(content.entries)),
        "tables.html": page("tables.html.j2", "tables.html", studies=_by_experiment(content.table_exhibits)),
        "figures.html": page("figures.html.j2", "figures.html", studies=_by_experiment(content.figures)),
        "replications.html": page("replications.html.j2", "replications.html", **_replications(content)),
        "arena.html": page("arena.html.j2", "arena.html", replications=_by_replication(content.arena)),
        "benchmark.html": page("benchmark.html.j2", "benchmark.html", **_exhibits(content, "benchmark")),
    }
    for exhibit in content.table_exhibits:
        path = f"tables/{exhibit.label}.html"
        found[path] = page("table.html.j2", path, exhibit=exhibit)
    return found | {name: environment.get_template(name).render() for name in STATIC}


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(str(__package__)),
        autoescape=lambda name: bool(name and name.endswith(".html.j2")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"slug": slug, "first_sentence": first_sentence, "coded": coded}
    return environment


def slug(verdict: str) -> str:
    """A verdict as the name of a class.

    >>> slug("not run here")
    'not-run-here'
    """
    return verdict.replace(" ", "-")


def first_sentence(text: str) -> str:
    """What a caption says first.

    >>> first_sentence("Means of 4 seeds, tau 0.1. Intervals: 95%.")
    'Means of 4 seeds, tau 0.1.'
    """
    head, stop, _ = text.partition(". ")
    return head + "." if stop else text


def coded(text: str) -> Markup:
    """Text in which what stands between backticks is code.

    >>> coded("a `gate` & more")
    Markup('a <code>gate</code> &amp; more')
    """
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _grouped(entries: Sequence[LedgerEntry]) -> dict[str, list[LedgerEntry]]:
    return {name: [e for e in entries if e.row["verdict"] in verdicts] for name, verdicts in GROUPS.items()}


def _by_section(entries: Sequence[LedgerEntry]) -> list[tuple[str, list[LedgerEntry]]]:
    return [(section, list(own)) for section, own in groupby(entries, key=lambda entry: entry.section)]


def _by_experiment(exhibits: Sequence[Exhibit]) -> list[tuple[str, list[Exhibit]]]:
    ordered = sorted(exhibits, key=lambda exhibit: (exhibit.experiment, exhibit.label))
    return [(name, list(own)) for name, own in groupby(ordered, key=lambda exhibit: exhibit.experiment)]


def _exhibits(content: SiteContent, experiment: str) -> dict[str, list[Exhibit]]:
    """Of one experiment."""
    return {
        "tables": [exhibit for exhibit in content.table_exhibits if exhibit.experiment == experiment],
        "figures": [exhibit for exhibit in content.figures if exhibit.experiment == experiment],
    }


def _by_replication(arena: Table | None) -> dict[str, Table]:
    """The arena's table in parts, by its first column."""
    if arena is None:
        return {}
    parts = groupby(arena.rows, key=lambda row: row[0])
    return {title: Table(arena.caption, arena.header[1:], [row[1:] for row in rows]) for title, rows in parts}


def _replications(content: SiteContent) -> dict[str, Any]:
    """What goes across data sets, and the verdict of every claim on each of them."""
    judged = [entry for entry in content.entries if entry.row["replications"]]
    names = sorted({entry.experiment for entry in judged})
    return {
        "studies": {name: _study([entry for entry in judged if entry.experiment == name]) for name in names},
        "tables": [exhibit for exhibit in content.table_exhibits if exhibit.across],
        "figures": [exhibit for exhibit in content.figures if exhibit.across],
    }


def _study(entries: Sequence[LedgerEntry]) -> dict[str, Any]:
    """Of one experiment: its claims, the data sets, and what was found about each claim on each of them."""
    found = {entry.row["name"]: {each["title"]: each for each in entry.row["replications"]} for entry in entries}
    return {"entries": entries, "found": found, "titles": sorted({title for own in found.values() for title in own})}
