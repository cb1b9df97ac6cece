"""What the record keeps, and the figure that is drawn from it."""

import pytest
from matplotlib import pyplot as plt

from experiments.embedding import run
from experiments.engine.config import expand
from experiments.engine.errors import UserError
from experiments.figures.embedding import embedding
from tests.experiments.vision.trees import CLASSES


def config(tree, *settings):
    (point,) = expand("embedding", ["config=smoke", f"data={tree['data']}", *settings])
    return point.config


def test_the_record_holds_points_with_their_classes_and_repeats_itself(tree, new_context):
    metrics = run(config(tree), new_context())
    assert metrics == run(config(tree), new_context())
    assert list(metrics["points"]) == ["real", "painting", "sketch"]
    assert metrics["classes"] == list(CLASSES)
    for points in metrics["points"].values():
        assert {len(column) for column in points.values()} == {8}
    assert 0 < metrics["explained"][1] <= metrics["explained"][0] < 1
    other = run(config(tree, "seed=1"), new_context())
    assert other["points"] != metrics["points"]
    assert other["explained"] == metrics["explained"]


def test_a_domain_with_fewer_images_is_shown_whole(tree, new_context):
    points = run(config(tree, "points=22", "domains=[painting,real]"), new_context())["points"]
    assert [len(part["labels"]) for part in points.values()] == [20, 22]


def test_the_figure_has_every_domain_and_labelled_axes(tree, new_context):
    made = config(tree)
    figure = embedding([{"config": vars(made), "metrics": run(made, new_context())}])
    images, means = figure.axes
    assert [text.get_text() for text in images.get_legend().get_texts()] == ["real", "painting", "sketch"]
    assert "of the source's variance" in images.get_xlabel()
    assert "of the source's variance" in means.get_ylabel()
    assert len(means.lines) >= 5
    plt.close(figure)


def test_mistakes_are_named(tree, new_context):
    with pytest.raises(UserError, match="points is 0"):
        run(config(tree, "points=0"), new_context())
    with pytest.raises(UserError, match="has no domain 'clay'"):
        run(config(tree, "domains=[clay]"), new_context())
