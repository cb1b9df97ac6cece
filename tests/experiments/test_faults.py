"""Every fault of `faults.py`, a few times; `make trust` tries them many times and keeps the counts."""

import pytest

from tests.experiments.faults import FAULTS, FaultTally, tallied


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_costs_no_record(what, tmp_path, monkeypatch):
    monkeypatch.setenv("TOY_COUNTER", str(tmp_path / "counter"))
    tried = 2 if "launcher" in what else 5
    assert tallied(what, tried) == FaultTally(tried=tried, held=tried)
