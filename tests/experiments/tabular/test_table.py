"""Tables: what a row becomes, groups that stay together, and the published copy."""

import pytest
import torch

from experiments.__main__ import main
from experiments.engine.config import expand
from experiments.engine.errors import UserError
from experiments.tabular.datasets import acs
from experiments.tabular.study import TableStudy, parted
from experiments.tabular.table import TableDomain, check_domain, look, tables
from tests.requirements import lacking


def config(**keys):
    words = ["config=acs", "arch=logistic", "seed=0", "train_share=0.5", *(f"{k}={v}" for k, v in keys.items())]
    return expand("gate", words)[0].config


def test_a_row_is_an_age_and_its_codes(few_people):
    x, y, groups = acs.domain("2016")
    own = few_people[few_people["year"] == 2016]
    assert x.shape == (len(own), len(acs.COLUMNS)) == (1200, 98)
    for i in (0, 7, 1199):
        person = own.iloc[i]
        assert x[i, 0] == pytest.approx((person["AGEP"] - 40) / 20)
        named = {acs.COLUMNS[j] for j in x[i, 1:].nonzero()[:, 0] + 1}
        assert named == {f"{name}={person[name]}" for name in acs.LEVELS}
        assert y[i] == person["employed"]
    assert torch.equal(x[:, 1:].sum(dim=1), torch.full((1200,), 15.0))
    assert groups.tolist() == [1 + i // 3 for i in range(1200)]


def test_groups_are_never_parted(generator):
    groups = torch.arange(1000) // 4
    parts = parted(TableDomain(torch.zeros(1000, 1), torch.zeros(1000), groups), generator=generator)
    assert [len(rows) for rows in parts] == [500, 148, 352]
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(1000))
    members = [set(groups[rows].tolist()) for rows in parts]
    assert sum(map(len, members)) == len(set.union(*members)) == 250
    assert all(torch.equal(rows, rows.sort().values) for rows in parts)


def test_seeds_differ_in_train_and_val_and_share_the_test(few_people):
    first, again, other = (TableStudy.of(config(seed=seed)).domain("2018") for seed in (0, 0, 1))
    for split in range(3):
        assert torch.equal(first[split].x, again[split].x)
    assert not torch.equal(first.train.x, other.train.x)
    assert not torch.equal(first.val.x, other.val.x)
    assert torch.equal(first.test.x, other.test.x)
    assert [len(rows) for rows in first] == [300, 90, 420]
    torch.testing.assert_close(first.train.x.norm(dim=1), torch.ones(300))


def test_what_a_table_does_not_have_is_refused():
    assert tables() == ["acs"]
    with pytest.raises(UserError, match="acs has no domain '2019': it has 2015, 2016, 2017, 2018"):
        check_domain("acs", "2019")
    with pytest.raises(UserError, match="arch is 'resnet50': Q of a table is one of logistic, perceptron"):
        TableStudy.of(config(arch="resnet50"))
    with pytest.raises(SystemExit, match="acs is a table, fetched where it is absent: leave the options out"):
        main(["data", "acs", "--download"])


def test_the_command_says_what_is_there(few_people, monkeypatch, capsys):
    main(["data", "acs"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:]] == [[y, "1,200", "1,200", "400", "98", "2"] for y in acs.DOMAINS]
    monkeypatch.setitem(acs.DOMAINS, "2017", 5)
    with pytest.raises(SystemExit, match="acs 2017 has 1,200 rows of 98 columns: restore"):
        main(["data", "acs"])


def test_the_published_table_is_whole():
    """Fetched if it is not at hand."""
    try:
        page = look("acs")
    except UserError as error:
        lacking(f"no package index answers ({error})", required_by="TRACE_REQUIRE_PYPI")
    assert page.splitlines()[1].split() == ["2015", "68,785", "68,785", "31,697", "98", "2"]
