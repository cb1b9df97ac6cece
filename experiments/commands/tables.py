"""Tables from stored records alone, as Markdown, LaTeX and CSV.

python -m experiments tables      # rewrites results/tables/ and the table in results/README.md, about a minute
python -m experiments tables --profile paper --output paper/tables      # of another profile, elsewhere
"""

import argparse
from pathlib import Path

from ..engine.manifests import add_incomplete, with_records
from ..engine.records import PROFILE, RECORDS, ROOT
from ..tables.table import replace_marked, table, to_markdown, write

TABLES = ROOT / "results" / "tables"
README = ROOT / "results" / "README.md"
IN_README = ("glance",)
"""Tables that also stand in that file, between markers of their label."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of *.jsonl (default: results/records)")
    parser.add_argument("--output", type=Path, help="folder for the tables (default: results/tables)")
    parser.add_argument("--readme", type=Path, help="file with marked parts (default: ours, for cpu without --output)")
    parser.add_argument("--profile", default=PROFILE, help="whose runs are shown: cpu or paper (default: %(default)s)")
    add_incomplete(parser)


def main(arguments: argparse.Namespace) -> None:
    """Write every table whose records exist, and name those that are missing."""
    committed = arguments.output is None and arguments.profile == PROFILE
    readme = arguments.readme or (README if committed else None)
    found = with_records(table.all(), arguments.records, arguments.profile, incomplete=arguments.incomplete)
    for label, records, make, note in found:
        made = make(records)
        made = made._replace(caption=made.caption + note)
        write(made, label, arguments.output or TABLES)
        if readme and label in IN_README:
            replace_marked(readme, label, to_markdown(made))
