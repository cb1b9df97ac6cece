"""Fetch a data set of images or a table, or check the copy at hand.

    python -m experiments data emoji                  builds it where it is absent (23 MB, about a minute)
    python -m experiments data domainnet --root DIR   checks a copy: counts, absent files
    python -m experiments data domainnet --download   fetches it (12 GB, and as much again unpacked)
    python -m experiments data pacs --root DIR        checks a copy by its digests, and writes our splits beside it
    python -m experiments data pacs --download        fetches it by git (191 MB)
    python -m experiments data acs                    fetches a table of people where it is absent (23 MB)
    python -m experiments data NAME                   checks the folder of configs/data/NAME.yaml

A folder of your own is laid out like DomainNet: configs/data/example.yaml shows it. A download that breaks off goes on
with the next call. The command fails where a copy is not whole.
"""

import argparse
from pathlib import Path

from ..engine.errors import UserError
from ..engine.registry import summaries
from ..tabular import datasets as table_sets
from ..tabular.table import look, tables
from ..vision import datasets
from ..vision.images import data_set, data_sets, load_dataset
from ..vision.split_report import SplitReport, as_text, check


def add_arguments(parser: argparse.ArgumentParser) -> None:
    folders = (datasets.__path__[0], table_sets.__path__[0])
    known_sets = {name: text for folder in folders for name, text in summaries(Path(folder)).items()}
    parser.epilog = "\n".join(f"{name:12}{text}" for name, text in known_sets.items())
    known = ", ".join(known_sets)
    parser.add_argument("name", metavar="NAME", help=f"{known}, or a YAML file: its path or name in configs/data")
    parser.add_argument(
        "--root", type=Path, help="the folder of the data (default: below $TRACE_DATA, else below ~/.cache/trace)"
    )
    parser.add_argument(
        "--domains",
        nargs="+",
        metavar="DOMAIN",
        help="which domains (default: all that are there; real, painting and sketch where they are built or fetched)",
    )
    parser.add_argument(
        "--images",
        action="store_true",
        help="also decode every image, minutes for DomainNet (default: only look for it)",
    )
    parser.add_argument(
        "--download",
        action="store_true",
        help="fetch what is missing of a published set (default: check what is there)",
    )


def main(arguments: argparse.Namespace) -> None:
    if arguments.name in tables():
        if arguments.root or arguments.domains or arguments.images or arguments.download:
            raise UserError(f"{arguments.name} is a table, fetched where it is absent: leave the options out")
        print(look(arguments.name))
        return
    reports = _look(arguments)
    print(as_text(reports))
    if problems := [problem for report in reports for problem in report.problems]:
        raise UserError(f"{arguments.name} is not whole ({len(problems)} problems above): fetch what is missing again")


def _look(arguments: argparse.Namespace) -> list[SplitReport]:
    domains = tuple(arguments.domains) if arguments.domains else None
    if arguments.name in data_sets():
        options = {"images": arguments.images, "download": arguments.download}
        return data_set(arguments.name).look(arguments.root, domains, **options)
    if arguments.download:
        raise UserError(f"nobody publishes {arguments.name}: leave --download out")
    return check(load_dataset(arguments.name, root=arguments.root), domains=domains, images=arguments.images)
