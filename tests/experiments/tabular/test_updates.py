"""Updates of tables: what spoils their training, and that scikit-learn's are scikit-learn's."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from experiments.engine.errors import UserError
from experiments.tabular.updates import TableSpec, perceptron, spoiled, updated
from experiments.vision.batches import Rows
from experiments.vision.classifier import new_classifier

COLUMNS = ("AGEP", "SEX=1", "SEX=2", "SEXTON=1")


@pytest.fixture
def rows(generator):
    x = torch.randn(400, 4, generator=generator)
    return Rows(x, (x[:, 0] + 0.5 * torch.randn(400, generator=generator) > 0).long())


@pytest.fixture
def make(rows):
    """The update that keys describe, of a Q that knows nothing."""

    def made(seed=0, **keys):
        generator = torch.Generator().manual_seed(seed)
        fresh = lambda: perceptron(4, 2, scale=1.0, generator=generator)  # noqa: E731
        q = new_classifier(4, 2)
        return updated(TableSpec(**keys), q, fresh, rows, source=rows, columns=COLUMNS, generator=generator)

    return made


def test_what_is_lost_is_zero_in_training_and_nothing_else_changes(rows, generator):
    found = spoiled(rows, TableSpec(lost=["SEX"]), COLUMNS, generator)
    assert torch.equal(found.x, rows.x * torch.tensor([1.0, 0.0, 0.0, 1.0]))
    assert torch.equal(found.y, rows.y)
    assert not torch.equal(rows.x, found.x)
    with pytest.raises(UserError, match="no attribute 'AGE' to lose: take some of AGEP, SEX, SEXTON"):
        spoiled(rows, TableSpec(lost=["AGE"]), COLUMNS, generator)


def test_noise_draws_so_many_labels_at_random(generator):
    rows = Rows(torch.zeros(20_000, 4), torch.arange(20_000) % 2)
    changed = (spoiled(rows, TableSpec(noise=0.6), COLUMNS, generator).y != rows.y).double().mean()
    assert float(changed) == pytest.approx(0.3, abs=0.015)
    assert spoiled(rows, TableSpec(), COLUMNS, generator).y is rows.y


def test_scikit_learns_logistic_regression_is_its_own(make, rows):
    expected = LogisticRegression(max_iter=1000).fit(rows.x.double().numpy(), rows.y.numpy())
    found = make(learner="logistic")(rows.x).exp()
    np.testing.assert_allclose(found.numpy(), expected.predict_proba(rows.x.numpy()), atol=1e-5)
    few = make(learner="logistic", label_fraction=0.05)(rows.x)
    assert not torch.allclose(few.exp(), found, atol=1e-3)


@pytest.mark.parametrize("learner", ["", "new", "logistic", "perceptron"])
def test_every_learner_learns_has_gradients_and_repeats_itself(make, rows, learner):
    keys = {"learner": learner, "lr": 0.1 if learner in ("", "new") else 0.01, "epochs": 20}
    model, again = make(**keys), make(**keys)
    x = rows.x.clone().requires_grad_(True)
    outputs = model(x)
    assert outputs.shape == (400, 2)
    assert float((outputs.argmax(dim=1) == rows.y).double().mean()) > 0.8
    assert torch.equal(outputs, again(rows.x))
    outputs[:, 1].sum().backward()
    assert x.grad.norm() > 0
    if learner in ("new", "perceptron"):
        assert not torch.equal(outputs, make(seed=1, **keys)(rows.x))


def test_new_weights_are_not_those_of_q(make, rows):
    """Without a step that counts, one is Q and the other a model of another kind."""
    tuned, new = (make(learner=learner, lr=1e-9, epochs=1) for learner in ("", "new"))
    assert tuned(rows.x).abs().max() < 1e-4
    assert [type(layer).__name__ for layer in new.features] == ["Linear", "Tanh"]


def test_a_perceptron_starts_undecided_from_its_generator():
    a, b, c = (perceptron(4, 2, scale=3.0, generator=torch.Generator().manual_seed(s)) for s in (0, 0, 1))
    x = torch.eye(4)
    assert torch.equal(a(x), torch.zeros(4, 2))
    assert torch.equal(a.features(x), b.features(x))
    assert not torch.equal(a.features(x), c.features(x))
    assert 1.0 < float(a.features[0].weight.detach().abs().max()) <= 1.5


def test_specs_that_cannot_be_are_refused():
    with pytest.raises(UserError, match="learner 'forest' is unknown: take one of new, logistic, perceptron"):
        TableSpec(learner="forest")
    with pytest.raises(UserError, match=r"noise is 1\.5: it must be between 0 and 1"):
        TableSpec(noise=1.5)
    with pytest.raises(UserError, match="lr is 0"):
        TableSpec(lr=0.0)
