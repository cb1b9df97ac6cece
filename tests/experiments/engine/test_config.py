"""Configs: merging, sweeps, and refusals that name the nearest key."""

import pytest

from experiments.engine.config import Run, expand, experiment_module
from tests.experiments import toy

TOY = "tests.experiments.toy"


@pytest.fixture
def configs(tmp_path):
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "cpu.yaml").write_text("scale: 2.0  # why\nsweep:\n  seed: [0, 1]\n  mode: [plain, slow]\n")
    (folder / "paper.yaml").write_text("profile: paper\nscale: 5.0  # why\n")
    (folder / "yaml.yaml").write_text("seed: [1,\n")
    (folder / "list.yaml").write_text("sweep: [1, 2]\n")
    (folder / "union.yaml").write_text(
        "sweep:\n- {seed: [0, 1], mode: [plain]}\n- {seed: [1, 2], mode: [plain, slow]}\n- {scale: [1.0, 3.0]}\n"
    )
    (folder / "number.yaml").write_text("sweep: {1: [2]}\n")
    (folder / "broken.yaml").write_text("sweep:\n  seed: 3\n")
    (folder / "typo.yaml").write_text("sclae: 2.0\n")
    return tmp_path


def points(runs):
    return [(run.config.seed, run.config.mode, run.config.scale) for run in runs]


def test_defaults_without_any_file(tmp_path):
    (run,) = expand(TOY, [], configs=tmp_path)
    assert run.config == toy.Config()


def test_yaml_sweeps_in_its_order(configs):
    assert points(expand(TOY, [], configs=configs)) == [
        (0, "plain", 2.0), (0, "slow", 2.0), (1, "plain", 2.0), (1, "slow", 2.0),
    ]  # fmt: skip


def test_command_line_pins_and_sweeps(configs):
    assert points(expand(TOY, ["seed=5", "mode=plain"], configs=configs)) == [(5, "plain", 2.0)]
    assert points(expand(TOY, ["mode=plain", "seed=[3,4]", "scale=1"], configs=configs)) == [
        (3, "plain", 1.0), (4, "plain", 1.0),
    ]  # fmt: skip
    (run,) = expand(TOY, ["layers=[3,4]", "mode=plain", "seed=0"], configs=configs)
    assert run.config.layers == [3, 4]  # a list field takes a list, it does not sweep


def test_a_nested_key_keeps_the_rest_of_the_yamls_block(tmp_path):
    folder = tmp_path / "isolation"
    folder.mkdir()
    (folder / "cpu.yaml").write_text("model: {epochs: 7, lr: 0.1}\nlrs: [0.5, 0.25]\n")
    (run,) = expand("isolation", ["model.lr=0.5", "lrs=[1]"], configs=tmp_path)
    assert (run.config.model.lr, run.config.model.epochs) == (0.5, 7)
    assert run.config.lrs == [1.0]  # a list is replaced


def test_a_star_opens_a_block_to_values_of_the_command_line(configs):
    (configs / "toy" / "open.yaml").write_text(
        'sweep:\n- {mode: [plain, slow, "*"], seed: [0]}\n- {mode: [slow], seed: [7]}\n- {mode: [plain], seed: [8]}\n'
    )

    def runs(*arguments):
        return [(r.config.mode, r.config.seed) for r in expand(TOY, ["config=open", *arguments], configs=configs)]

    assert runs() == [("plain", 0), ("slow", 0), ("slow", 7), ("plain", 8)]
    assert runs("mode=slow") == [("slow", 0), ("slow", 7)]
    assert runs("mode=new") == [("new", 0)]
    assert runs("mode=[new,slow]") == [("new", 0), ("slow", 0)]
    assert runs("seed=5") == [("plain", 5), ("slow", 5)]


def test_a_profile_names_its_variant(configs):
    (run,) = expand(TOY, ["profile=paper"], configs=configs)
    assert (run.config.profile, run.config.scale) == ("paper", 5.0)
    (same,) = expand(TOY, ["config=paper"], configs=configs)
    assert same == run


def test_a_list_of_sweeps_is_the_union_of_their_grids(configs):
    assert points(expand(TOY, ["config=union"], configs=configs)) == [
        (0, "plain", 1.0), (1, "plain", 1.0),
        (1, "slow", 1.0), (2, "plain", 1.0), (2, "slow", 1.0),  # (1, plain) is there already
        (0, "plain", 3.0),
    ]  # fmt: skip


def test_overrides_apply_to_every_block(configs):
    assert points(expand(TOY, ["config=union", "seed=7"], configs=configs)) == [
        (7, "plain", 1.0), (7, "slow", 1.0), (7, "plain", 3.0),
    ]  # fmt: skip
    assert points(expand(TOY, ["config=union", "seed=[8,9]", "mode=plain", "scale=2"], configs=configs)) == [
        (8, "plain", 2.0), (9, "plain", 2.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sacle=2"], "no config key 'sacle': did you mean scale"),
        (["zzz=2"], "no config key 'zzz': it has profile, seed, scale, mode, layers"),
        (["seed=one"], "Value 'one'.*(key seed)"),
        (["scale=[1,two]"], "could not be converted to Float.*(key scale)"),
        (["seed"], "'seed' is not of the form key=value"),
        (["config=nothing"], "nothing.yaml does not exist: config is one of broken, cpu, list, number, paper"),
        (["config=broken"], "sweep.seed must be a list of values, got 3"),
        (["config=yaml"], "yaml.yaml is not valid YAML"),
        (["config=list"], "sweep must map keys to lists of values"),
        (["config=number"], "no config key '1'"),
        (["seed=[1,"], "cannot be read"),
        (["scale=${x"], "cannot be read"),
        (["seed=[]"], "sweeps over nothing"),
        (["config=typo"], "no config key 'sclae': did you mean scale"),
        (["profile=smoke"], "smoke.yaml does not exist"),
    ],
)
def test_refusals(configs, arguments, message):
    with pytest.raises(ValueError, match=message):
        expand(TOY, arguments, configs=configs)


def test_a_point_named_twice_is_one_run(configs):
    assert len(expand(TOY, ["seed=[0,0]", "mode=plain"], configs=configs)) == 1


def test_unknown_experiments():
    with pytest.raises(ValueError, match="unknown experiment 'nothing'"):
        experiment_module("nothing")
    with pytest.raises(ValueError, match="is no experiment: it needs a dataclass Config"):
        experiment_module("tables")


def test_identity_is_the_config_alone():
    same = {Run(TOY, toy.Config(seed=1)).run_id for _ in range(3)}
    others = {Run(TOY, toy.Config(seed=s, scale=c)).run_id for s in range(3) for c in (1.0, 2.0)}
    assert len(same) == 1
    assert len(others) == 6
    assert Run("other.toy", toy.Config(seed=1)).run_id not in same
