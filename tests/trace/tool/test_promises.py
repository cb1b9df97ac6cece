"""The gate on the updates that people bring: a forgotten class, an improvement, the same model, rows that are added."""

import json
import re

import numpy as np
import pytest
import skops.io
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from trace.io.writing import sealed
from trace.report.brief import LINES

LIMIT = "threshold: 0.05\n"


@pytest.fixture(scope="module")
def forests(tmp_path_factory):
    """A forest that knows a rare class, one trained without it, and the samples: the rare class is 3% of the anchor."""
    folder, rng = tmp_path_factory.mktemp("forests"), np.random.default_rng(0)

    def rows(n, rare):
        y = (rng.random(n) < rare).astype(int)
        x = rng.normal(size=(n, 4)) + 4.0 * y[:, None] * np.array([1, 0, 0, 0])
        return x, y

    source, target = rows(3000, 0.03), rows(1000, 0.0)
    held = rows(6000, 0.03)
    target[1][:2] = 1  # two rows with a wrong label, so that the class is known to the model
    for name, (x, y) in {"source": source, "target": target, "held": held}.items():
        np.savez(folder / f"{name}.npz", x=x, y=y)
        np.savez(folder / f"{name}_blind.npz", x=x)
    for name, (x, y) in {"old": source, "new": target}.items():
        forest = RandomForestClassifier(30, min_samples_leaf=5, random_state=0).fit(x, y)
        skops.io.dump(forest, folder / f"{name}.skops")
    return folder


def gate(tool, folder, *options, policy=LIMIT, source="source", held="held", new="new"):
    (folder / "policy.yaml").write_text(policy)
    return tool(
        "gate",
        *("--policy", folder / "policy.yaml"),
        *("--model", folder / "old.skops", "--new-model", folder / f"{new}.skops"),
        *("--source", folder / f"{source}.npz", "--source-val", folder / f"{held}.npz"),
        *("--target", folder / "target_blind.npz"),
        *options,
    )


def test_a_forest_that_forgets_a_rare_class_is_rejected(tool, forests):
    """The recall falls from 9 in 10 to 0, while 3% of the predictions change."""
    code, out, err = gate(tool, forests)
    assert code == 1, err
    assert out.startswith("REJECT the update: the largest fall of recall in any class is at least +")
    assert "(class 1)" in out
    assert "\nNext: keep the old model, and train the new one on more rows of class 1.\n" in out
    assert re.search(r"\nThe recall of class 1 goes from [89]\d% to 0% in \d+ rows\.\n", out)
    assert len(out.splitlines()) <= LINES
    assert "anchor_disagreement" in gate(tool, forests, "--verbose")[1]  # which accepts


def test_the_default_policy_sees_it_without_labels(tool, forests):
    options = ("--model", forests / "old.skops", "--new-model", forests / "new.skops")
    samples = ("--source", forests / "source.npz", "--target", forests / "target_blind.npz")
    code, out, err = tool("gate", *options, *samples, "--source-val", forests / "held_blind.npz")
    assert code == 1, err
    assert "the largest share of predictions that change in any class that the old model predicts is" in out
    assert "It cannot tell harm from help." in out


@pytest.fixture(scope="module")
def improvement(tmp_path_factory):
    """A stump of 70% accuracy and a tree of 95%."""
    folder, rng = tmp_path_factory.mktemp("improvement"), np.random.default_rng(0)
    for name, n in (("source", 1000), ("target", 1000), ("held", 2000)):
        x = rng.normal(size=(n, 2))
        y = np.where(rng.random(n) < 0.05, rng.integers(0, 2, n), (x[:, 0] + x[:, 1] > 0).astype(int))
        np.savez(folder / f"{name}.npz", x=x, y=y)
        np.savez(folder / f"{name}_blind.npz", x=x)
        if name == "source":
            skops.io.dump(DecisionTreeClassifier(max_depth=1).fit(x, y), folder / "old.skops")
        if name == "target":
            skops.io.dump(DecisionTreeClassifier(max_depth=9, min_samples_leaf=5).fit(x, y), folder / "new.skops")
    return folder


def test_an_improvement_is_no_harm_to_who_can_see(tool, improvement):
    code, out, err = gate(tool, improvement, held="held_blind")
    assert code == 1, err
    assert "It cannot tell harm from help." in out
    assert (
        "\nNext: label held-out anchor rows (trace-shift label, or --anchor-test) and let them decide "
        "(labels: decide in the policy).\n" in out
    )
    code, out, _ = gate(tool, improvement)
    assert code == 1
    assert "It cannot tell harm from help, but labels can: the change of the anchor's error rate is at most -" in out
    code, out, _ = gate(tool, improvement, policy=LIMIT + "labels: decide\n")
    assert code == 0
    assert out.startswith("ACCEPT the update: the share of predictions on the anchor that change is")
    assert "labels can tell harm from help and overrule it" in out


def test_the_same_model_twice_is_an_accept(tool, improvement, tmp_path):
    """By its name, or by its bytes under another one, with any policy and few rows."""
    (improvement / "copy.skops").write_bytes((improvement / "old.skops").read_bytes())
    few = dict(np.load(improvement / "held.npz"))
    np.savez(improvement / "few.npz", **{key: rows[:20] for key, rows in few.items()})
    for new in ("old", "copy"):
        for policy in (LIMIT, "min_source: 100\n", "score: trace_w\nthreshold: 0.001\n"):
            code, out, err = gate(tool, improvement, new=new, held="few", policy=policy)
            assert code == 0, err
            assert out.startswith("ACCEPT the update: the new model is the old one: nothing changes.")


def test_rules_in_a_policy(tool, improvement):
    policy = """
rules:
  - {score: error_change, limit: 0.02, unlabelled: anchor_disagreement}
  - {score: recall_drop, limit: 0.2}
  - {score: anchor_disagreement, limit: 0.05, role: advisory}
"""
    code, out, err = gate(tool, improvement, "--json", "-", policy=policy)
    assert code == 0, err
    found = json.loads(out)
    assert [(rule["score"], rule["role"], rule["decision"]) for rule in found["rules"]] == [
        ("error_change", "required", "accept"),
        ("recall_drop", "required", "accept"),
        ("anchor_disagreement", "advisory", "reject"),
    ]
    code, out, _ = gate(tool, improvement, policy=policy, held="held_blind")
    assert code == 1  # no labels: the disagreement stands in


def test_groups_come_from_a_column(tool, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 2))
    y, region = (x[:, 0] > 0).astype(int), np.where(np.arange(4000) % 5 == 0, "north", "south")
    outputs = np.stack([-x[:, 0], x[:, 0]], axis=1)
    flipped = np.where(((region == "north") & (np.arange(4000) % 4 == 0))[:, None], -outputs, outputs)
    for name, part in {"source": slice(0, 1000), "held": slice(1000, 4000)}.items():
        arrays = {"x": x[part], "y": y[part], "logits": outputs[part], "new_logits": flipped[part]}
        np.savez(tmp_path / f"{name}.npz", **arrays, group=region[part])
    policy = "rules:\n  - {score: group_error_rise, limit: 0.1}\n"
    (tmp_path / "policy.yaml").write_text(policy)
    options = ("--source", tmp_path / "source.npz", "--source-val", tmp_path / "held.npz", "--group", "region")
    code, out, err = tool(
        "gate", "--policy", tmp_path / "policy.yaml", *options, "--target", tmp_path / "source.npz", "--verbose"
    )
    assert code == 1, err
    assert "the largest rise of the error rate in any group (--group) is at least +" in out
    assert "(group north)" in out


def test_a_group_that_no_file_has(tool, improvement):
    code, out, err = gate(tool, improvement, "--group", "region")
    assert (code, out) == (3, "")
    assert "no sample of an anchor has a column 'region', which --group asks for: check its name" in err


def test_rows_that_are_added_keep_the_level_and_fresh_ones_spend_it(tool, improvement, tmp_path):
    arrays = dict(np.load(improvement / "held.npz"))
    parts = {"first": slice(0, 600), "more": slice(0, 1500), "fresh": slice(600, 2000)}
    for name, part in parts.items():
        np.savez(tmp_path / f"{name}.npz", **{key: rows[part] for key, rows in arrays.items()})
    (tmp_path / "policy.yaml").write_text("threshold: 0.9\n")

    def diagnose(name, *options):
        samples = ("--source", improvement / "source.npz", "--source-val", tmp_path / f"{name}.npz")
        models = ("--model", improvement / "old.skops", "--new-model", improvement / "new.skops")
        target = ("--target", improvement / "target_blind.npz")
        code, out, err = tool("diagnose", *models, *samples, *target, "--json", tmp_path / f"{name}.json", *options)
        assert code == 0, err
        return out, json.loads((tmp_path / f"{name}.json").read_text())

    _, first = diagnose("first")
    assert first["look"] == 1
    assert first["rows"]["source"]["source_val"]["rows"] == 600
    out, more = diagnose("more", "--previous", tmp_path / "first.json")
    assert more["look"] == 1
    assert out.startswith("The held-out rows begin with those of")
    out, fresh = diagnose("fresh", "--previous", tmp_path / "first.json")
    assert fresh["look"] == 2
    assert "draw 2 of fresh rows, which spends error of its own" in out
    answers = {}
    for name, policy in (("more", ""), ("fresh", ""), ("fresh", "looks: 2\n")):
        (tmp_path / "policy.yaml").write_text("threshold: 0.9\n" + policy)
        code, out, _ = tool("gate", "--policy", tmp_path / "policy.yaml", "--diagnostic", tmp_path / f"{name}.json")
        answers[name, policy] = code
    assert answers == {("more", ""): 0, ("fresh", ""): 2, ("fresh", "looks: 2\n"): 0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"look": "soon"}, "is damaged"),
        ({"rows": {"source": {"source_val": 3}}}, "holds no digests of its rows"),
        ({"rows": None}, "is damaged"),
    ],
)
def test_an_earlier_record_that_is_damaged(tool, improvement, tmp_path, change, message):
    record = {"format": "trace-diagnostic/1", "look": 1, "rows": {}, **change}
    (tmp_path / "before.json").write_text(json.dumps(sealed(record)))
    code, out, err = gate(tool, improvement, "--previous", tmp_path / "before.json")
    assert (code, out) == (3, "")
    assert message in err


@pytest.mark.parametrize(("digest", "message"), [(None, "carries no digest"), ("0" * 64, "was edited or damaged")])
def test_an_earlier_record_must_carry_its_digest(tool, improvement, tmp_path, digest, message):
    record = {"format": "trace-diagnostic/1", "look": 1, "rows": {"source": {}}}
    assert "digest" in sealed(record)
    (tmp_path / "before.json").write_text(json.dumps({**record, **({"digest": digest} if digest else {})}))
    code, out, err = gate(tool, improvement, "--previous", tmp_path / "before.json")
    assert (code, out) == (3, "")
    assert message in err
