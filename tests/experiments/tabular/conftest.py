"""A few hundred people in place of a state, in the columns of the real table."""

import numpy as np
import pytest
from pandas import DataFrame

from experiments.tabular.datasets import acs
from tests.experiments.vision.conftest import one_thread

__all__ = ["one_thread"]

PEOPLE = 1200
"""Of every year."""


def people(year):
    """Who works follows from age and schooling; later years are older."""
    chance = np.random.default_rng(int(year))
    drawn = {name: chance.integers(min(levels), max(levels) + 1, PEOPLE) for name, levels in acs.LEVELS.items()}
    drawn["RELP"] = np.where(np.arange(PEOPLE) % 3 == 0, 0, 1)
    age = chance.uniform(0, 94, PEOPLE).round() * 0.9 + 2 * (int(year) - 2015)
    logit = 4 - (age - 42) ** 2 / 100 + (drawn["SCHL"] - 12) / 3
    works = chance.uniform(size=PEOPLE) < 1 / (1 + np.exp(-logit))
    codes = {name: values.astype(str) for name, values in drawn.items()}
    return DataFrame({"AGEP": age, **codes, "employed": works.astype(int), "year": int(year)})


@pytest.fixture
def few_people(monkeypatch):
    """`data=acs` is a small table, and nothing is fetched."""
    frames = [people(year) for year in acs.DOMAINS]
    everybody = frames[0].__class__(np.concatenate(frames), columns=frames[0].columns).astype(frames[0].dtypes)
    monkeypatch.setattr(acs, "_people", lambda: everybody)
    monkeypatch.setattr(acs, "DOMAINS", dict.fromkeys(acs.DOMAINS, PEOPLE))
    return everybody
