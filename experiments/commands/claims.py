"""The claims ledger from stored records: every claim of the paper with what we measured and a verdict.

python -m experiments claims                                      # rewrites results/claims.md and .json, seconds
python -m experiments claims --profile paper --output paper       # of another profile, beside the README
"""

import argparse
import json
from collections import Counter
from pathlib import Path

from trace.io.writing import write_atomically

from ..claims.ledger import VERDICTS, Claim, Records, all_claims
from ..claims.standin import EXPERIMENTS, of_either
from ..engine.errors import MissingFileError, UserError
from ..engine.records import PROFILE, RECORDS, ROOT, of_profile, read_records
from ..tables.table import Table, replace_marked, to_markdown

RESULTS = ROOT / "results"
README = ROOT / "README.md"

HEADLINES = (
    "rank_blobs_shift_proxy_ot",
    "rank_moons_warp_proxy_ot",
    "ranks_under_true_covariate_shift",
    "bound_is_valid",
    "risk_change_is_linear",
    "bound_is_sharp",
    "sinkhorn_is_w1",
    "loss_bound",
    "promised_probability",
    "gate_rank_correlation_on_emoji",
    "gate_areas_at_13_on_emoji",
    "gate_best_score_on_emoji",
    "msp_orientation",
    "w1min_risk_improves_on_emoji",
    "policies_against_random_on_emoji",
    "w1min_improves_monotonically",
    "anchor_penalty_protects",
)
"""Claims that also stand in the README."""

Row = dict[str, str | int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of *.jsonl (default: results/records)")
    parser.add_argument("--output", type=Path, help="folder for the ledger (default: results, for profile cpu alone)")
    parser.add_argument("--profile", default=PROFILE, help="whose runs are judged: cpu or paper (default: %(default)s)")
    parser.add_argument("--readme", type=Path, help="file with a marked part (default: ours, without --output)")


def main(arguments: argparse.Namespace) -> None:
    """Judge every claim on the stored records, and write the ledger twice: to be read, and to be computed with."""
    folder = arguments.output or RESULTS
    if arguments.output is None and arguments.profile != PROFILE:
        raise UserError(
            f"the ledger in results is that of {PROFILE}: name a folder for {arguments.profile} by --output"
        )
    rows = judged(all_claims(), stored(arguments.records, arguments.profile))
    write_atomically(folder / "claims.md", to_markdown(as_table(rows)) + "\n")
    write_atomically(folder / "claims.json", json.dumps(rows, indent=2) + "\n")
    if readme := arguments.readme or (README if arguments.output is None else None):
        replace_marked(readme, "headlines", to_markdown(headlines(rows)))
    print(summary(rows))


def stored(folder: Path, profile: str) -> Records:
    """The records of one profile by experiment; an experiment that was not run in it has none.

    The image studies run on the stand-in in one profile and on DomainNet in the other, so theirs come from both.

    Raises:
        UserError: where the folder does not exist, or its records are all of other profiles.
    """
    if not folder.is_dir():
        raise MissingFileError(f"{folder} does not exist: name the folder of the records with --records")
    if found := {path.stem: read_records(path) for path in sorted(folder.glob("*.jsonl"))}:
        of_profile([record for records in found.values() for record in records], profile)
    own = {name: [record for record in records if record["profile"] == profile] for name, records in found.items()}
    return own | {name: of_either(found[name], profile) for name in EXPERIMENTS if name in found}


def judged(claims: list[Claim], records: Records) -> list[Row]:
    """One row for each claim, ordered by the paper's label."""
    rows: list[Row] = []
    for claim in sorted(claims, key=lambda claim: (claim.label, claim.name)):
        finding = claim.judge(records)
        rows.append(
            {
                "claim": claim.statement,
                "name": claim.name,
                "label": claim.label,
                "published": claim.published,
                "measured": finding.measured,
                "runs": finding.runs,
                "verdict": finding.verdict,
                "why": finding.why,
            }
        )
    return rows


def summary(rows: list[Row]) -> str:
    """How many claims have each verdict."""
    counts = Counter(row["verdict"] for row in rows)
    return f"{len(rows)} claims: " + ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS) + "."


def headlines(rows: list[Row]) -> Table:
    """The main claims, briefly."""
    chosen = {str(row["name"]): row for row in rows}
    keys = ("claim", "published", "measured", "verdict")
    caption = f"{summary(rows)} Intervals: 95% percentile bootstrap over seeds, too narrow where seeds are few."
    return Table(
        caption,
        ["claim", "published", "ours", "verdict"],
        [[str(chosen[name][key]) for key in keys] for name in HEADLINES],
    )


def as_table(rows: list[Row]) -> Table:
    """The ledger as it is read; the key ``runs`` counts cases of several kinds, and is called so."""
    keys = ("claim", "label", "published", "measured", "runs", "verdict", "why")
    header = ["claim", "paper's label", "published", "measured", "cases", "verdict", "why"]
    caption = (
        f"{summary(rows)} A case is what the measured number is taken over: a pair of trained models, a round of "
        "active selection, an update at the gate, a ridge problem or a sample of it, a timed call, or a random draw. "
        "0 cases: arithmetic on the paper's own numbers, or nothing was run."
    )
    return Table(caption, header, [[str(row[key]) for key in keys] for row in rows])
