"""The keys of a config are the library's settings: none is missing, none has another default."""

from dataclasses import MISSING, fields, replace

import pytest

from experiments.engine.config import expand
from experiments.pairs.settings import LossConfig, SettingsConfig
from trace import Settings
from trace.losses import ClippedCrossEntropy

MEMORY_ALONE = {"batch_size"}
"""Settings that change no number."""


def test_every_setting_is_a_key_with_the_same_default():
    keys = {field.name: field.default for field in fields(SettingsConfig)}
    library = {field.name: field.default for field in fields(Settings) if field.name not in MEMORY_ALONE}
    assert keys == library
    assert MISSING not in keys.values()
    assert SettingsConfig().settings() == Settings()
    assert LossConfig().loss() == ClippedCrossEntropy()


CHANGES = {
    "q": 0.9,
    "delta": 0.01,
    "eta": 0.02,
    "c_h": 2.0,
    "distance": "wasserstein1",
    "epsilon": 0.5,
    "num_iters": 7,
    "tol": 1e-3,
    "kernel": "laplace",
    "bandwidth": 0.7,
    "mmd_samples": 11,
    "loss_bound": "paper",
    "remainders": "paper",
    "w1_constant": 3.0,
    "mmd_constant": 2.5,
    "input_diameter": 9.0,
}


def test_every_key_is_changed_below():
    assert set(CHANGES) == {field.name for field in fields(SettingsConfig)}


@pytest.mark.parametrize("name", CHANGES)
def test_a_key_reaches_the_librarys_settings(name):
    run, *_ = expand("synthetic", ["config=smoke", f"{name}={CHANGES[name]}"])
    assert run.config.settings() == replace(Settings(), **{name: CHANGES[name]})


def test_numbers_out_of_range_are_refused():
    with pytest.raises(ValueError, match="q"):
        SettingsConfig(q=1.5).settings()
    with pytest.raises(ValueError, match="epsilon"):
        SettingsConfig(epsilon=-1.0).settings()
