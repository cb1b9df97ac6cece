"""The claims ledger from stored records: every claim with its rule, what we measured and a verdict.

python -m experiments claims                                      # rewrites results/claims.md and .json, seconds
python -m experiments claims --profile paper --output paper       # of another profile, beside the README

A rule is committed first; then this command finds the commit and prints it beside the verdict.
"""

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from trace.io.writing import write_atomically

from ..analysis.replications import replication_title
from ..claims.history import RuleHistory, history_of, seen
from ..claims.ledger import RULES, WHOSE, Claim, Records, all_claims
from ..claims.rule import VERDICTS
from ..engine.errors import MissingFileError, UserError
from ..engine.manifests import add_incomplete, shortfall
from ..engine.records import PROFILE, RECORDS, ROOT, TRIALS, Record, of_profile, read_records
from ..tables.table import Table, replace_marked, to_markdown

RESULTS = ROOT / "results"
README = ROOT / "README.md"
CASES = ("active", "gate")
"""The case studies: each profile has data sets or backbones of its own, and all of them are judged."""
LEFT_OUT = RULES.parent / "left_out.yaml"
FINDINGS = RULES.parent / "findings.yaml"
"""The claims that the README tells in plain words."""

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
    "gate_rank_correlation_on_other_data",
    "gate_areas_at_13_on_other_data",
    "gate_best_score",
    "msp_orientation",
    "w1min_risk_improves_on_other_data",
    "policies_against_random",
    "w1min_improves_monotonically",
    "anchor_penalty_protects",
)
"""Claims that the results page opens with."""

Row = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of *.jsonl (default: results/records)")
    parser.add_argument("--output", type=Path, help="folder for the ledger (default: results, for profile cpu alone)")
    parser.add_argument("--profile", default=PROFILE, help="whose runs are judged: cpu or paper (default: %(default)s)")
    parser.add_argument("--readme", type=Path, help="file with a marked part (default: ours, without --output)")
    add_incomplete(parser)


def main(arguments: argparse.Namespace) -> None:
    """Judge every claim on the stored records, and write the ledger twice: to be read, and to be computed with."""
    folder = arguments.output or RESULTS
    if arguments.output is None and arguments.profile != PROFILE:
        raise UserError(
            f"the ledger in results is that of {PROFILE}: name a folder for {arguments.profile} by --output"
        )
    claims = all_claims()
    records = stored(arguments.records, arguments.profile)
    note = shortfalls(records, arguments.records, incomplete=arguments.incomplete)
    rows = judged(claims, records, history_of(claims, committed_rows()))
    write_atomically(folder / "claims.md", page(rows, note))
    write_atomically(folder / "claims.json", json.dumps(rows, indent=2) + "\n")
    if readme := arguments.readme or (README if arguments.output is None else None):
        replace_marked(readme, "headlines", told(rows, findings(), note))
    print(summary(rows) + note)
    if unknown := sum(not row["rule_commit"] for row in rows):
        print(
            f"{unknown} rules have no commit: commit experiments/claims/rules (in a whole clone), then run this again"
        )


def committed_rows() -> list[Row]:
    """The rows of the ledger in results; none where there is no such file."""
    path = RESULTS / "claims.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else []


def stored(folder: Path, profile: str) -> Records:
    """The records of one profile by experiment; an experiment that was not run in it has none.

    The case studies have replications in other profiles, and DomainNet in the paper's: theirs come from all.

    Raises:
        UserError: where the folder does not exist, or its records are all of other profiles.
    """
    if not folder.is_dir():
        raise MissingFileError(f"{folder} does not exist: name the folder of the records with --records")
    if found := {path.stem: read_records(path) for path in sorted(folder.glob("*.jsonl"))}:
        of_profile([record for records in found.values() for record in records], profile)
    own = {name: [record for record in records if record["profile"] == profile] for name, records in found.items()}
    return own | {name: with_replications(found[name], profile) for name in CASES if name in found}


def with_replications(records: list[Record], profile: str) -> list[Record]:
    """The records of a profile, and those of the others on data sets, pairs and backbones that it was not run on."""
    found: list[Record] = []
    for name in dict.fromkeys([profile, PROFILE, *sorted({record["profile"] for record in records} - {*TRIALS})]):
        present = {replication_title(record["config"]) for record in found}
        own = [record for record in records if record["profile"] == name]
        found += [record for record in own if replication_title(record["config"]) not in present]
    return found


def shortfalls(records: Records, folder: Path, *, incomplete: bool) -> str:
    """What is missing of the grids that the records come from; refused unless ``incomplete``."""
    profiles = {name: {str(record["profile"]) for record in found} for name, found in records.items() if found}
    return "".join(shortfall(folder / f"{name}.jsonl", own, incomplete=incomplete) for name, own in profiles.items())


def judged(claims: list[Claim], records: Records, histories: dict[str, RuleHistory]) -> list[Row]:
    """One row for each claim, ordered by the paper's label."""
    rows: list[Row] = []
    for claim in sorted(claims, key=lambda claim: (claim.label, claim.name)):
        finding, history = claim.judge(records), histories[claim.name]
        rows.append(
            {
                "claim": claim.statement,
                "name": claim.name,
                "label": claim.label,
                "whose": claim.whose,
                "published": claim.published,
                "rule": claim.rule.in_words(),
                "measured": finding.measured,
                "cases": finding.cases,
                "verdict": finding.verdict,
                "why": finding.why,
                "rule_digest": claim.rule.digest,
                "rule_commit": history.commit,
                "data_seen": history.data_seen,
                "replications": [replication._asdict() for replication in finding.replications],
            }
        )
    return rows


def summary(rows: list[Row]) -> str:
    """How many claims have each verdict, by whose they are."""
    return " ".join(_counted(whose, [row for row in rows if row["whose"] == whose]) for whose in WHOSE)


def _counted(whose: str, rows: list[Row]) -> str:
    counts = Counter(row["verdict"] for row in rows)
    listed = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]) or "none"
    return f"{whose.capitalize()}: {len(rows)} claims ({listed})."


def findings() -> list[dict[str, Any]]:
    """What the README tells, in its order."""
    return yaml.safe_load(FINDINGS.read_text("utf-8"))


def told(rows: list[Row], entries: list[dict[str, Any]], note: str = "") -> str:
    """The counts of verdicts, and one line for each finding."""
    chosen = {str(row["name"]): row for row in rows}
    intervals = "Intervals: 95%, Student's t over seeds (at the gate over seeds and candidates)."
    return "\n".join([f"{summary(rows)} {intervals}{note}", "", *(_line(chosen[e["claim"]], e) for e in entries)])


def _line(row: Row, entry: dict[str, Any]) -> str:
    """A sentence, our number, the paper's, and the verdict; the numbers of the replications that the entry names.

    The sentence was written for one verdict: under another one the claim stands in its own words.
    """
    chosen = [r for title in entry.get("only", ()) for r in row["replications"] if r["title"] == title]
    numbers = [f"{r['title']}: {_number(r, entry)}" for r in chosen] or [_number(row, entry)]
    says = entry["says"] if row["verdict"] == entry["if"] else str(row["claim"]).rstrip(".")
    over = f" over {len(row['replications'])} data sets and models" if len(row["replications"]) > 1 else ""
    return f"- **{says}:** {'; '.join(numbers)}. Paper: {row['published']}; *{row['verdict']}*{over}."


def _number(shown: Mapping[str, Any], entry: dict[str, Any]) -> str:
    """What was measured, or the parts of it that an entry takes."""
    parts = str(shown[entry.get("take", "measured")]).rstrip(".").split("; ")
    number = "; ".join([parts[i] for i in entry.get("parts", ()) if i < len(parts)] or parts)
    return number[0].lower() + number[1:] if "take" in entry else number


def page(rows: list[Row], note: str = "") -> str:
    """The ledger as it is read."""
    return "\n\n".join([to_markdown(as_table(rows, note)), _looked_at(), to_markdown(left_out())]) + "\n"


def as_table(rows: list[Row], note: str = "") -> Table:
    header = ["claim", "paper's label", "whose", "published", "measured", "cases", "verdict", "why", "rule", "fixed at"]
    keys = ("claim", "label", "whose", "published", "measured", "cases", "verdict", "why", "rule")
    caption = (
        f"{summary(rows)} A case is what the measured number is taken over: a pair of trained models, a round of "
        "active selection, an update at the gate, a ridge problem or a sample of it, a timed call, or a random draw. "
        "0 cases: arithmetic on the paper's own numbers, or nothing was run. Intervals are 95%, Student's t over seeds "
        "(at the gate over seeds and candidates); all seeds of an image study share one test set, whose chance they "
        "leave out. A value whose interval holds a rule's threshold is undecided. `fixed at` is the commit at which "
        "the rule last changed, and which of its data existed then: rules stood in code before they were data, so for "
        f"old data that is all of them.{note}"
    )
    return Table(caption, header, [[*(str(row[key]) for key in keys), _fixed_at(row)] for row in rows])


def _fixed_at(row: Row) -> str:
    if not row["rule_commit"]:
        return "not committed"
    data = row["data_seen"]
    said = {"no records": "", "none": ", before any of its data", "all": ", its data existed"}
    return row["rule_commit"][:7] + said.get(data, f", after {data}")


def left_out() -> Table:
    """What the paper says and no row judges."""
    entries = yaml.safe_load(LEFT_OUT.read_text("utf-8"))
    caption = "Left out: sentences of the paper that no row judges, in its order, with the reason."
    return Table(caption, ["paper's label", "says", "why it is left out"], [list(entry.values()) for entry in entries])


def _looked_at() -> str:
    lines = [f"- `{entry['experiment']}` on {entry['title']}: {entry['what']}." for entry in seen()]
    return "\n".join(["Looked at before any rule was committed, without stored records:", "", *lines])
