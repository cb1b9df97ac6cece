"""Unfinished grids: whatever part of the committed records is stored, ledger, tables and figures come out whole."""

from collections.abc import Iterator

import pytest

from experiments.__main__ import main
from experiments.claims.ledger import all_claims
from experiments.claims.rule import VERDICTS
from experiments.engine.records import RECORDS, read_records, write_records
from experiments.figures.style import figure
from experiments.tables.table import table

EXPERIMENTS = sorted(path.stem for path in RECORDS.glob("*.jsonl"))
OF_RECORDS = [claim for claim in all_claims() if claim.rule.records]
"""The claims that look at records at all."""


ROLES = ("development", "shared_draw", "labels", "vary", "study", "angle")
"""Keys that decide which rows and panels a record belongs to."""
KINDS = (*ROLES, "world", "policy", "data")
"""All that tells the records of an experiment apart beside their seed and size."""


def one_of_each(experiment, keys):
    stored = read_records(RECORDS / f"{experiment}.jsonl")
    return list({tuple(str(record["config"].get(key)) for key in keys): record for record in stored}.values())


def parts(experiment) -> Iterator[list]:
    """Single records of every kind, and halves of the grid as the order of their hashes cuts it."""
    stored = read_records(RECORDS / f"{experiment}.jsonl")
    yield from ([record] for record in one_of_each(experiment, KINDS))
    yield from (part for part in (stored[::2], stored[: len(stored) // 2], stored[len(stored) // 2 :]) if part)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_claim_answers(experiment):
    for part in parts(experiment):
        for claim in OF_RECORDS:
            finding = claim.judge({experiment: part})
            assert finding.verdict in VERDICTS, claim.name
            assert finding.measured, claim.name
            assert finding.why, claim.name
            assert "nan" not in finding.measured.split(), (claim.name, finding)
            assert finding.verdict == "not run here" or finding.cases > 0, (claim.name, finding)


@pytest.mark.parametrize("experiment", ["active", "anchoring", "gate"])
def test_one_seed_decides_nothing(experiment):
    for record in one_of_each(experiment, KINDS):
        found = {claim.name: claim.judge({experiment: [record]}).verdict for claim in OF_RECORDS}
        assert set(found.values()) == {"not run here"}, found


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_tables_and_figures_come_out(experiment, tmp_path, capsys):
    """Each of a single record; what belongs to another experiment is named as missing."""
    for number, record in enumerate(one_of_each(experiment, ROLES)):
        store = tmp_path / str(number)
        write_records([record], store / f"{experiment}.jsonl")
        for command, makers, suffix in (("tables", table.all(), "md"), ("figures", figure.all(), "png")):
            own = {name for name, entry in makers.items() if entry.experiment == experiment}
            if own:
                options = ["--profile", record["profile"], "--output", str(store / command)]
                main([command, "--incomplete", "--records", str(store), *options])
                assert {path.stem for path in (store / command).glob(f"*.{suffix}")} == own
    assert "is missing" in capsys.readouterr().out
