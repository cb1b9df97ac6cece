"""CSV and Parquet: columns by name, labels by name, and what is wrong with a table."""

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from trace.io.data import read_rows
from trace.io.errors import UserError

from ..conftest import rows


def read(path, *, label=None, identity=None, group=None):
    options = {"transform": None, "labelled": True, "columns": None, "limit": None, "generator": None}
    return read_rows(str(path), label=label, identity=identity, group=group, **options)


def table(n, shift, seed, names=("no", "yes")):
    x, y = rows(n, shift, seed)
    return pd.DataFrame(x.astype(float), columns=["a", "b", "c"]).assign(outcome=np.array(names)[y])


@pytest.fixture
def folder(tmp_path):
    """Two fitted pipelines in skops, and their data in CSV."""
    for name, shift, seed in (("source", 0.0, 0), ("target", 0.5, 1)):
        frame = table(150, shift, seed)
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        estimator = make_pipeline(StandardScaler(), LogisticRegression()).fit(frame[["a", "b", "c"]], frame["outcome"])
        skops.io.dump(estimator, tmp_path / f"{name}.skops")
    return tmp_path


@pytest.fixture
def models(folder):
    return (
        "--model",
        folder / "source.skops",
        "--new-model",
        folder / "target.skops",
        "--label",
        "outcome",
        "--hold-out",
    )


def test_pipelines_have_gradients(diagnosed, folder, models):
    record = diagnosed(*models, "--source", folder / "source.csv", "--target", folder / "target.csv")["anchors"][
        "source"
    ]
    assert record["bound_ot"] > 0
    assert record["sizes"]["source"] == 128


def test_columns_go_by_name_and_parquet_says_the_same(diagnosed, folder, models):
    frame = pd.read_csv(folder / "target.csv")
    shuffled = frame[["c", "outcome", "a", "b"]].assign(row=range(len(frame)))
    shuffled.to_parquet(folder / "target.parquet")
    plain = diagnosed(*models, "--source", folder / "source.csv", "--target", folder / "target.csv")
    other = diagnosed(*models, "--source", folder / "source.csv", "--target", folder / "target.parquet")
    assert other["anchors"] == plain["anchors"]
    assert any("that are no inputs are left out: row" in note for note in other["notes"]["source"])


def test_columns_of_the_first_table_hold_where_the_model_has_no_names(diagnosed, tool, update, tmp_path):
    models = ("--model", update / "old.pt", "--new-model", update / "new.pt", "--trust", "--hold-out")
    for name, n, shift, seed in (("source", 200, 0.0, 0), ("target", 160, 0.5, 1)):
        x, y = rows(n, shift, seed)
        frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(y=y)
        (frame if name == "source" else frame[["b", "y", "c", "a"]]).to_parquet(tmp_path / f"{name}.parquet")
    samples = ("--source", tmp_path / "source.parquet", "--target", tmp_path / "target.parquet")
    found = diagnosed(*models, *samples, "--scale", "none")
    arrays = diagnosed(*models, "--source", update / "source.npz", "--target", update / "target.npz")
    assert found["anchors"]["source"]["bound_ot"] == pytest.approx(arrays["anchors"]["source"]["bound_ot"], rel=1e-4)
    frame.drop(columns="b").to_csv(tmp_path / "less.csv", index=False)
    code, _, err = tool("diagnose", *models, "--source", tmp_path / "source.parquet", "--target", tmp_path / "less.csv")
    assert code == 3
    assert "less.csv has no column 'b' (it has a, c, y)" in err


def test_units_of_columns_do_not_matter(diagnosed, tmp_path):
    records = []
    for factor in (1.0, 1000.0):
        for name, shift, seed in (("source", 0.0, 0), ("target", 0.5, 1)):
            frame = table(150, shift, seed).assign(a=lambda t, factor=factor: factor * t["a"] + factor)
            frame.to_csv(tmp_path / f"{name}.csv", index=False)
            estimator = make_pipeline(StandardScaler(), LogisticRegression()).fit(
                frame[["a", "b", "c"]], frame["outcome"]
            )
            skops.io.dump(estimator, tmp_path / f"{name}.skops")
        options = (
            "--model",
            tmp_path / "source.skops",
            "--new-model",
            tmp_path / "target.skops",
            "--label",
            "outcome",
            "--source",
            tmp_path / "source.csv",
            "--target",
            tmp_path / "target.csv",
            "--hold-out",
        )
        records.append(diagnosed(*options)["anchors"]["source"])
    raw = diagnosed(*options, "--scale", "none")["anchors"]["source"]
    for key in ("bound_ot", "bound_mmd", "emp_shift_hybrid", "population_ot", "gap_source"):
        assert records[1][key] == pytest.approx(records[0][key], rel=1e-6)
    assert raw["transport"]["value"] > 1e4 * records[0]["transport"]["value"]
    assert raw["gap_source"] == pytest.approx(records[0]["gap_source"], rel=1e-6)


def test_an_input_of_the_models_is_no_label(diagnosed, tmp_path):
    """Columns x and y are inputs; the label is `target`."""
    x, y = rows(120, 0.0, 0)
    frame = pd.DataFrame({"x": x[:, 0], "y": x[:, 1], "target": y})
    frame.to_csv(tmp_path / "a.csv", index=False)
    skops.io.dump(LogisticRegression().fit(frame[["x", "y"]], frame["target"]), tmp_path / "m.skops")
    model = ("--model", tmp_path / "m.skops", "--new-model", tmp_path / "m.skops")
    record = diagnosed(*model, "--source", tmp_path / "a.csv", "--target", tmp_path / "a.csv", "--hold-out")
    assert record["anchors"]["source"]["gap_source"] is not None


def test_labels_stored_as_floats(diagnosed, tmp_path):
    """Classes 1.0 and 2.0, read from CSV as floats: outputs 0 and 1."""
    x, y = rows(200, 0.0, 0)
    frame = pd.DataFrame(x.astype(float), columns=["a", "b", "c"]).assign(label=y + 1.0)
    frame.to_csv(tmp_path / "a.csv", index=False)
    skops.io.dump(LogisticRegression().fit(frame[["a", "b", "c"]], frame["label"]), tmp_path / "m.skops")
    model = ("--model", tmp_path / "m.skops", "--new-model", tmp_path / "m.skops")
    found = diagnosed(
        *model, "--source", tmp_path / "a.csv", "--target", tmp_path / "a.csv", "--anchor-test", tmp_path / "a.csv"
    )["anchors"]["source"]
    assert found["risk_change"] == 0.0


def test_the_target_may_have_no_labels_but_the_source_must(diagnosed, tool, folder, models):
    bare = pd.read_csv(folder / "target.csv").drop(columns="outcome")
    bare.to_csv(folder / "bare.csv", index=False)
    found = diagnosed(*models, "--source", folder / "source.csv", "--target", folder / "bare.csv")
    assert found["anchors"]["source"]["gap_target"] is None
    assert any("bare.csv has no labels" in note for note in found["notes"]["source"])
    code, _, err = tool("diagnose", *models, "--source", folder / "bare.csv", "--target", folder / "target.csv")
    assert code == 3
    assert "bare.csv has no column 'outcome' (it has a, b, c): name the label with --label" in err


def broken():
    frame = table(10, 0.0, 0)
    return {
        "text": (frame.assign(a="Rome"), "column 'a' holds 'Rome', which is no number"),
        "hole": (frame.assign(b=[None, *range(9)]), "column 'b' is empty in row 0"),
        "infinite": (frame.assign(b=[*range(9), np.inf]), "holds NaN or infinity (first in row 9)"),
        "unlabelled": (frame.assign(outcome=["yes", None, *["no"] * 8]), "the label 'outcome' is missing in row 1"),
        "label": (frame[["outcome"]], "has no column but the label"),
        "nothing": (frame.iloc[:0], "is empty"),
    }


@pytest.mark.parametrize("name", broken())
def test_broken_tables(tmp_path, name):
    frame, words = broken()[name]
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(UserError) as caught:
        read(tmp_path / "t.parquet", label="outcome")
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_what_is_no_table(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(UserError, match=f"{name} is no readable"):
        read(tmp_path / name)


def test_the_id_is_no_input(diagnosed, tool, folder, models):
    for name, first in (("source", 0), ("target", 1000)):
        frame = pd.read_csv(folder / f"{name}.csv")
        frame.assign(patient=[f"p{first + i}" for i in range(len(frame))]).to_csv(folder / f"{name}.csv", index=False)
    line = (*models[:-1], "--source", folder / "source.csv", "--target", folder / "target.csv", "--id", "patient")
    held = table(120, 0.0, 7).assign(patient=[f"p{145 + i}" for i in range(120)])
    held.to_csv(folder / "held.csv", index=False)
    record = diagnosed(*line, "--source-val", folder / "held.csv")["anchors"]["source"]
    why = "5 of the 120 held-out rows have the id of a training row: they were not held out"
    assert record["reasons"]["anchor"] == why
    held.assign(patient=range(120)).to_csv(folder / "held.csv", index=False)
    assert "anchor" not in diagnosed(*line, "--source-val", folder / "held.csv")["anchors"]["source"]["reasons"]
    code, _, err = tool("diagnose", *line[:-1], "patent")
    assert code == 3
    assert "source.csv has no column 'patent' (it has a, b, c, outcome, patient): did you mean 'patient'?" in err


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (["north", None, "", "south"], ("north", "missing", "missing", "south")),
        ([1, 2, None, 1], ("1", "2", "missing", "1")),
        ([1, 2, 2, 1], ("1", "2", "2", "1")),
        ([1.5, None, 2.0, 1.5], ("1.5", "missing", "2", "1.5")),
    ],
)
def test_a_group_that_is_not_there_is_called_missing(tmp_path, kind, column, expected):
    frame = table(4, 0.0, 0).assign(region=column)
    path = tmp_path / f"t.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    assert read(path, label="outcome", group="region").groups == expected
    if all(isinstance(value, float) for value in frame["region"]):
        np.savez(tmp_path / "t.npz", x=frame[["a", "b"]].to_numpy(), group=frame["region"].to_numpy())
        assert read(tmp_path / "t.npz").groups == expected


def test_unknown_label_names(tool, folder, models):
    table(50, 0.0, 0, names=("no", "maybe")).to_csv(folder / "maybe.csv", index=False)
    code, _, err = tool("diagnose", *models, "--source", folder / "maybe.csv", "--target", folder / "target.csv")
    assert code == 3
    assert "maybe.csv: 'maybe' is none of the classes (no, yes)" in err


def test_models_with_other_classes(tool, folder, models):
    frame = table(50, 0.0, 0, names=("bad", "good"))
    skops.io.dump(LogisticRegression().fit(frame[["a", "b", "c"]], frame["outcome"]), folder / "other.skops")
    code, _, err = tool(
        "diagnose",
        *models[:2],
        "--new-model",
        folder / "other.skops",
        "--label",
        "outcome",
        "--source",
        folder / "source.csv",
        "--target",
        folder / "target.csv",
    )
    assert code == 3
    assert "the models have other classes (no, yes against bad, good)" in err


def test_a_clinic_with_larger_tumours(diagnosed, tool, tmp_path):
    """Breast cancer, scikit-learn's own data: the update comes from a clinic that sees the larger half of tumours.

    P(y|x) is the data's own in both samples, so the shift is in the inputs alone; the old clinic is the anchor.
    """
    data = load_breast_cancer(as_frame=True)
    frame = data.frame.rename(columns={"target": "diagnosis"})
    frame["diagnosis"] = data.target_names[data.target]
    frame = frame.sample(frac=1, random_state=0)
    chance = (frame["mean radius"].rank(pct=True) > 0.5) * 0.8 + 0.1
    large = np.random.default_rng(0).random(len(frame)) < chance
    anchor, target = frame[~large], frame[large]
    parts = {"old": anchor[:140], "held": anchor[140:200], "test": anchor[200:], "new": target[:200]}
    for name, part in (*parts.items(), ("new_held", target[200:])):
        part.to_csv(tmp_path / f"{name}.csv", index=False)
    for name in ("old", "new"):
        part, estimator = parts[name], make_pipeline(StandardScaler(), LogisticRegression())
        skops.io.dump(estimator.fit(part[list(data.feature_names)], part["diagnosis"]), tmp_path / f"{name}.skops")
    options = (
        "--model",
        tmp_path / "old.skops",
        "--new-model",
        tmp_path / "new.skops",
        "--label",
        "diagnosis",
        "--source",
        f"old_clinic={tmp_path / 'old.csv'}",
        "--target",
        tmp_path / "new.csv",
        "--source-val",
        tmp_path / "held.csv",
        "--target-val",
        tmp_path / "new_held.csv",
        "--anchor-test",
        tmp_path / "test.csv",
    )
    record = diagnosed(*options)["anchors"]["old_clinic"]
    assert 0 < abs(record["risk_change"]) < record["bound_mmd"] < record["bound_full_mmd"]
    assert record["mmd"]["value"] > 0.2
    assert record["bound_ot"] > record["bound_mmd"]
    code, out, _ = tool("diagnose", *options, "--verbose")
    assert code == 0
    assert "The anchor's risk changes by at most" in out
    assert "The covariate-shift penalty is more than the loss allows and says nothing." in out
    assert "lie farther apart than two halves of the anchor's own" in out
