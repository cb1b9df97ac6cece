"""Configs: merging, sweeps, and refusals that name the nearest key."""

from dataclasses import dataclass, field

import pytest

from experiments.engine.config import (
    MACHINE,
    Run,
    added,
    expand,
    experiment_module,
    identity,
    variants,
    whole_grid,
    with_added,
)
from experiments.engine.errors import UserError
from experiments.engine.records import RECORDS, read_records
from tests.experiments import toy

TOY = "tests.experiments.toy"


@pytest.fixture
def configs(tmp_path):
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "cpu.yaml").write_text("scale: 2.0  # why\nsweep:\n  seed: [0, 1]\n  mode: [plain, slow]\n")
    (folder / "paper.yaml").write_text("scale: 5.0  # why\n")
    (folder / "beside.yaml").write_text("profile: paper\nscale: 6.0  # why\n")
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


def test_a_variant_names_its_profile_unless_its_yaml_does(configs):
    (run,) = expand(TOY, ["config=paper"], configs=configs)
    assert (run.config.profile, run.config.scale) == ("paper", 5.0)
    (beside,) = expand(TOY, ["config=beside"], configs=configs)
    assert (beside.config.profile, beside.config.scale) == ("paper", 6.0)


def test_commas_sweep_like_a_list(configs):
    for values in ("3,4", "[3,4]", "3, 4"):
        assert [run.config.seed for run in expand(TOY, [f"seed={values}", "mode=plain"], configs=configs)] == [3, 4]
    for values in ("3,4", "[3,4]"):
        (run,) = expand(TOY, [f"layers={values}", "mode=plain", "seed=0"], configs=configs)
        assert run.config.layers == [3, 4]
    (run,) = expand(TOY, ["layers=7", "mode=plain", "seed=0"], configs=configs)
    assert run.config.layers == [7]
    assert [r.config.scale for r in expand(TOY, ["scale=1e-3,2", "mode=plain", "seed=0"], configs=configs)] == [1e-3, 2]


@pytest.fixture
def two_models(tmp_path):
    (tmp_path / "synthetic").mkdir()
    (tmp_path / "synthetic" / "cpu.yaml").write_text("models:\n- {name: a, lr: 1.0}\n- {name: b, epochs: 7}\n")
    return tmp_path


def test_dotted_keys_reach_into_lists_and_mappings(two_models):
    one, two = expand("synthetic", ["models.1.lr=2,3", "models.0.hidden=4,5"], configs=two_models)
    assert [run.config.models[1].lr for run in (one, two)] == [2.0, 3.0]
    assert (one.config.models[0].hidden, one.config.models[1].epochs) == ([4, 5], 7)
    (run,) = expand("anchoring", ["strengths.rehearsal.0=9", "recipes.images.lr=0.5"], configs=two_models)
    assert run.config.strengths["rehearsal"][:2] == [9.0, 0.03]
    assert (run.config.recipes["images"].lr, run.config.recipes["images"].optimiser) == (0.5, "sgd")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("models.2.lr=3", r"synthetic: models.2.lr is out of range: the list has 2 entries"),
        ("models.0.lrr=3", r"ModelSpec has no config key 'lrr' \(models.0.lrr\): did you mean lr"),
        ("models.first.lr=3", "'first' is no entry of a list: count them from 0"),
        ("models.-1.lr=3", "'-1' is no entry of a list"),
        ("spec.nonsense=1", r"synthetic has no config key 'spec' \(spec.nonsense\)"),
        ("seed.x=1", "seed.x: there is nothing below a plain value: leave out .x"),
        ("models.0=3", r"Invalid type assigned.*models\[0\]"),
        ("models.0.lr={a: 1}", "could not be converted to Float"),
    ],
)
def test_dotted_keys_that_lead_nowhere(two_models, argument, message):
    with pytest.raises(UserError, match=message):
        expand("synthetic", [argument], configs=two_models)


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
        (["config=nothing"], "nothing.yaml does not exist: config is one of beside, broken, cpu, list, number, paper"),
        (["config=broken"], "sweep.seed must be a list of values, got 3"),
        (["config=yaml"], "yaml.yaml is not valid YAML"),
        (["config=list"], "sweep must map keys to lists of values"),
        (["config=number"], "no config key '1'"),
        (["seed=[1,"], "cannot be read"),
        (["scale=${x"], "cannot be read"),
        (["seed=[]"], "sweeps over nothing"),
        (["config=typo"], "no config key 'sclae': did you mean scale"),
        (["profile=smoke"], "profile=smoke follows from the variant: write config=smoke"),
        (["config=cpu,paper"], "does not exist: config is one of"),
        (["=3"], "'=3' is not of the form key=value"),
        (["seed="], "'seed=' gives no value: write seed=VALUE"),
        (["..=3"], "no config key ''"),
        (["seed=null"], "Incompatible value 'None'.*(key seed)"),
    ],
)
def test_refusals(configs, arguments, message):
    with pytest.raises(UserError, match=message):
        expand(TOY, arguments, configs=configs)


def test_a_point_named_twice_is_one_run(configs):
    assert len(expand(TOY, ["seed=[0,0]", "mode=plain"], configs=configs)) == 1


def test_unknown_experiments():
    with pytest.raises(ValueError, match="unknown experiment 'nothing'"):
        experiment_module("nothing")
    with pytest.raises(ValueError, match="is no experiment: it needs a dataclass Config"):
        experiment_module("tables")


@pytest.mark.parametrize("path", sorted(RECORDS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_committed_records_are_whole_grids(path):
    """Their ids are those of the configs as they are today."""
    if variants(path.stem):
        stored = read_records(path)
        profiles = {record["profile"] for record in stored}
        grids = [run for variant in variants(path.stem) for run in whole_grid(path.stem, variant)]
        assert {run.run_id for run in grids if run.values["profile"] in profiles} == {r["run_id"] for r in stored}


def test_an_id_is_that_of_the_config_and_its_experiment():
    same = {Run(TOY, toy.Config(seed=1)).run_id for _ in range(3)}
    others = {Run(TOY, toy.Config(seed=s, scale=c)).run_id for s in range(3) for c in (1.0, 2.0)}
    assert len(same) == 1
    assert len(others) == 6
    assert Run("other.toy", toy.Config(seed=1)).run_id not in same


@dataclass(frozen=True)
class Step:
    """A part of a config, as it was first."""

    lr: float = 0.1


@dataclass(frozen=True)
class Before:
    seed: int = 0
    step: Step = field(default_factory=Step)
    steps: list[Step] = field(default_factory=lambda: [Step(1.0), Step(2.0)])
    named: dict[str, Step] = field(default_factory=lambda: {"last": Step(3.0)})


@dataclass(frozen=True)
class LaterStep(Step):
    """The same with a key that was added, and one that only its machine sees."""

    momentum: float = added(0.0)
    device: str = field(default="cpu", metadata=MACHINE)


@dataclass(frozen=True)
class Later:
    seed: int = 0
    step: LaterStep = field(default_factory=LaterStep)
    steps: list[LaterStep] = field(default_factory=lambda: [LaterStep(1.0), LaterStep(2.0)])
    named: dict[str, LaterStep] = field(default_factory=lambda: {"last": LaterStep(3.0)})
    clip: float | None = added(None)
    workers: int = field(default=0, metadata=MACHINE)


def test_ids_from_before_a_key_was_added_stay():
    plain = {"seed": 0, "step": {"lr": 0.1}, "steps": [{"lr": 1.0}, {"lr": 2.0}], "named": {"last": {"lr": 3.0}}}
    assert identity(Before()) == identity(Later()) == plain
    assert Run(TOY, Before()).run_id == Run(TOY, Later()).run_id


@pytest.mark.parametrize(
    "config",
    [
        Later(workers=8),
        Later(step=LaterStep(device="cuda")),
        Later(steps=[LaterStep(1.0, device="cuda"), LaterStep(2.0)]),
        Later(named={"last": LaterStep(3.0, device="cuda")}),
    ],
)
def test_the_machine_is_no_part_of_an_id(config):
    assert Run(TOY, config).run_id == Run(TOY, Before()).run_id


def test_an_added_key_with_another_value_is_another_run():
    configs = [
        Later(),
        Later(clip=0.0),
        Later(clip=1.0),
        Later(step=LaterStep(momentum=0.9)),
        Later(steps=[LaterStep(1.0, momentum=0.9), LaterStep(2.0)]),
        Later(named={"last": LaterStep(3.0, momentum=0.9)}),
        Later(step=LaterStep(0.2)),
    ]
    assert len({Run(TOY, config).run_id for config in configs}) == len(configs)
    assert identity(Later(clip=1.0)) == {**identity(Before()), "clip": 1.0}


def test_a_config_from_before_gets_the_keys_that_were_added():
    """At every depth, with the value of then, and without a change of the id or of what it has."""
    before = {**identity(Before()), "step": {"lr": 0.2, "momentum": 0.9}, "gone": 1}
    found = with_added(Later, before)
    assert found == {
        "seed": 0,
        "step": {"lr": 0.2, "momentum": 0.9},
        "steps": [{"lr": 1.0, "momentum": 0.0}, {"lr": 2.0, "momentum": 0.0}],
        "named": {"last": {"lr": 3.0, "momentum": 0.0}},
        "clip": None,
        "gone": 1,
    }
    assert with_added(Later, found) == found


def test_an_added_default_may_change_and_its_old_value_keeps_its_id():
    """Runs with the value from before are those of old; runs with the new default are new."""

    @dataclass(frozen=True)
    class Moved(Before):
        clip: float | None = field(default=5.0, metadata={"added": None})

    assert Run(TOY, Moved(clip=None)).run_id == Run(TOY, Before()).run_id
    assert Run(TOY, Moved()).run_id == Run(TOY, Later(clip=5.0)).run_id
