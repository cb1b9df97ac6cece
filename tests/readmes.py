"""The READMEs of all folders: their text, their Python, and the commands of their ```bash blocks."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("configs", "experiments", "notebooks", "slurm", "tests", "trace")
PAGES = {
    str(path.relative_to(ROOT)): path.read_text("utf-8")
    for path in (
        *(ROOT / "README.md", ROOT / "results" / "README.md"),
        *(path for room in ROOMS for path in sorted((ROOT / room).rglob("README.md"))),
    )
}
"""By their path; the root's first, then that of results, whose runs are not searched."""

EVERYTHING = "\n".join(PAGES.values())
EXPERIMENTS = "python -m experiments "
NEEDS = re.compile(r"needs (DomainNet|PyPI|conda|a W&B login|results/arena)")
"""What a test cannot bring."""


class Command(NamedTuple):
    """A line of a ```bash block."""

    page: str
    line: str
    comment: str

    @property
    def needs(self) -> bool:
        return bool(NEEDS.search(self.comment))


def marked(page: str, name: str) -> str:
    """What stands between two markers of a page."""
    return PAGES[page].split(f"<!-- {name}:begin -->")[1].split(f"<!-- {name}:end -->")[0]


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language, or of none."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [block for name, block in found if name == language]


def commands() -> list[Command]:
    """Every line of every ```bash block, in the order of the pages; one that is continued counts as one."""
    found = []
    for page, text in PAGES.items():
        for line in re.sub(r"\s*\\\n\s*", " ", "".join(blocks(text, "bash"))).splitlines():
            command, _, comment = line.partition(" # ")
            found.append(Command(page, command.strip(), comment))
    return found
