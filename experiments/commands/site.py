"""The results page, from stored records alone: a folder of HTML that needs no network.

    make site                                       # into build/site, two minutes; open build/site/index.html
    python -m experiments site --made results       # with the tables, figures and verdicts that stand there, seconds

What holds and what does not, the ledger with filters, all tables and figures, replications, the arena, benchmark, and
the manual.
"""

import argparse
import csv
import inspect
import json
import shutil
from pathlib import Path

from trace.io.writing import write_atomically

from ..arena.cases import ARENA, bouts
from ..arena.contest import entered, joined, ladder
from ..claims.ledger import all_claims
from ..engine.errors import MissingFileError
from ..engine.manifests import add_incomplete, read_grids
from ..engine.records import PROFILE, RECORDS, ROOT, read_records
from ..figures.style import figure
from ..site.evidence import Exhibit, entries_of
from ..site.pages import SiteContent, pages
from ..tables.table import Table, table
from . import claims, figures, manual, tables

OUTPUT = ROOT / "build" / "site"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of *.jsonl (default: results/records)")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder for the pages (default: build/site)")
    parser.add_argument("--profile", default=PROFILE, help="whose runs are shown: cpu or paper (default: %(default)s)")
    parser.add_argument(
        "--made",
        type=Path,
        metavar="DIR",
        help="a folder whose tables/, figures/ and claims.json are taken as they are (default: made from the records)",
    )
    add_incomplete(parser)


def main(arguments: argparse.Namespace) -> None:
    """Write the whole site in place of an earlier one."""
    output: Path = arguments.output
    shutil.rmtree(output, ignore_errors=True)
    if arguments.made:
        take(arguments.made, output)
    else:
        make(arguments)
    content = gather(output, arguments.records, arguments.profile, incomplete=arguments.incomplete)
    for name, text in pages(content).items():
        write_atomically(output / name, text)
    manual.build(output / "manual")
    counted = f"{len(content.entries)} claims, {len(content.tables)} tables, {len(content.figures)} figures"
    print(f"{counted}: open {output / 'index.html'}")


def make(arguments: argparse.Namespace) -> None:
    """Tables, figures and ledger from the records, by the commands that write them into results."""
    shared = vars(arguments)
    for command, folder in ((tables, "tables"), (figures, "figures"), (claims, "")):
        command.main(argparse.Namespace(**shared | {"output": arguments.output / folder, "readme": None, "only": None}))


def take(made: Path, output: Path) -> None:
    """Copy what an earlier call wrote.

    Raises:
        MissingFileError: where it is not all there.
    """
    for name in ("tables", "figures", "claims.json"):
        if not (made / name).exists():
            raise MissingFileError(f"{made / name} does not exist: leave --made out, and it is made from the records")
    for name in ("tables", "figures"):
        shutil.copytree(made / name, output / name)
    shutil.copy(made / "claims.json", output)


def with_arena(scores: Table, output: Path, records: Path) -> Path:
    """Write the arena's page of a site anew, with these scores.

    Raises:
        MissingFileError: where there is no site.
    """
    if not (output / "claims.json").exists():
        raise MissingFileError(f"{output} holds no results page: `make site` makes it")
    content = gather(output, records, PROFILE, incomplete=True)._replace(arena=scores)
    write_atomically(output / "arena.html", pages(content)["arena.html"])
    return output / "arena.html"


def gather(output: Path, folder: Path, profile: str, *, incomplete: bool) -> SiteContent:
    """What the pages show, from the files that stand in their folder and the records in another behind them."""
    shown = {label: read_table(output / "tables" / label) for label in table.all() if _has(output, "tables", label)}
    exhibits = [Exhibit(label, *table.all()[label][::2], shown[label].caption) for label in shown]
    drawn = [
        Exhibit(name, entry.experiment, entry.across, inspect.getdoc(entry.make) or "")
        for name, entry in figure.all().items()
        if _has(output, "figures", name)
    ]
    records = claims.stored(folder, profile)
    paths = sorted(folder.glob("*.jsonl"))
    return SiteContent(
        entries=entries_of(
            json.loads((output / "claims.json").read_text("utf-8")),
            all_claims(),
            exhibits,
            drawn,
            records,
            {path.stem: list(read_grids(path) or ()) for path in paths},
        ),
        headlines=claims.HEADLINES,
        left_out=claims.left_out(),
        tables=shown,
        table_exhibits=exhibits,
        figures=drawn,
        experiments={path.stem: len(read_records(path)) for path in paths},
        arena=_arena(folder),
        note=claims.shortfalls(records, folder, incomplete=incomplete).strip(),
    )


def _arena(folder: Path) -> Table | None:
    """All scores of the records on the stored cases, where both are there."""
    if folder != RECORDS or not (folder / "gate.jsonl").exists() or not any(ARENA.glob("*.npz")):
        return None
    return ladder(joined(read_records(folder / "gate.jsonl"), entered(bouts())))


def _has(output: Path, folder: str, name: str) -> bool:
    return any((output / folder).glob(f"{name}.*"))


def read_table(path: Path) -> Table:
    """A table from ``LABEL.csv``, with the caption of ``LABEL.md``."""
    header, *rows = csv.reader(path.with_suffix(".csv").read_text("utf-8").splitlines())
    return Table(path.with_suffix(".md").read_text("utf-8").split("\n\n")[0], header, rows)
