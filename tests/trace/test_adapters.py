"""scikit-learn estimators as models: exact outputs, gradients where they exist, reasons where they do not."""

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from trace import Sample, diagnose
from trace.adapters import from_sklearn
from trace.losses import SquaredError


def perceptron(activation="relu", kind=MLPClassifier):
    return kind(hidden_layer_sizes=(8, 5), activation=activation, solver="lbfgs", max_iter=20, tol=1.0, random_state=0)


@pytest.fixture(params=[load_iris, load_breast_cancer], ids=["three classes", "two classes"])
def data(request):
    x, y = request.param(return_X_y=True)
    return StandardScaler().fit_transform(x), y


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(),
        make_pipeline(StandardScaler(), LogisticRegression(C=0.1)),
        make_pipeline(StandardScaler(with_mean=False), LogisticRegression(fit_intercept=False)),
        make_pipeline(StandardScaler(with_std=False), perceptron()),
        *(perceptron(activation) for activation in ("relu", "tanh", "logistic", "identity")),
    ],
    ids=str,
)
def test_networks_equal_their_estimators(data, estimator):
    x, y = data
    estimator.fit(x, y)
    model = from_sklearn(estimator)
    inputs = torch.from_numpy(x).requires_grad_()
    outputs = model(inputs)
    assert model.network is not None
    assert np.allclose(outputs.detach().exp().numpy(), estimator.predict_proba(x), atol=1e-12)
    outputs[:, 0].sum().backward()
    step = 1e-6 * np.eye(x.shape[1])[0]
    p, p_less = (estimator.predict_proba(x + sign * step)[:, 0] for sign in (1, -1))
    unsure = np.minimum(p, p_less) > 1e-4  # elsewhere the differences below lose their digits
    slope = (np.log(p[unsure]) - np.log(p_less[unsure])) / 2e-6
    assert unsure.sum() > 20
    assert np.allclose(inputs.grad[unsure, 0].numpy(), slope, atol=1e-5, rtol=1e-4)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator", [LinearRegression(), Ridge(), perceptron(kind=MLPRegressor)], ids=str)
def test_regressors(estimator):
    x, y = load_diabetes(return_X_y=True)
    estimator.fit(x, y)
    outputs = from_sklearn(estimator)(torch.from_numpy(x))
    assert outputs.shape == (len(x), 1)
    assert np.allclose(outputs.detach()[:, 0].numpy(), estimator.predict(x))


@pytest.mark.parametrize(
    "estimator",
    [
        RandomForestClassifier(5, random_state=0),
        make_pipeline(MinMaxScaler(), LogisticRegression()),
        DecisionTreeClassifier(max_depth=1, random_state=0),
    ],
    ids=str,
)
def test_other_classifiers_give_log_probabilities_and_no_gradient(data, estimator):
    x, y = data
    estimator.fit(x, y)
    model = from_sklearn(estimator)
    assert model.network is None
    outputs = model(torch.from_numpy(x).float())
    assert outputs.dtype == torch.float32
    assert np.allclose(outputs.exp().numpy(), estimator.predict_proba(x.astype(np.float32).astype(float)), atol=1e-6)
    sample = Sample(torch.from_numpy(x), torch.from_numpy(y))
    found = diagnose(model, model, sample, sample, source_val=sample, target_val=sample)
    assert "gives no gradients" in found.reasons["emp_shift_ot"]
    assert math.isnan(found.bound_core("ot"))
    assert found.bound_core("mmd") == 0


def test_margins(data):
    x, y = data
    estimator = LinearSVC(tol=1e-2).fit(x, y)
    outputs = from_sklearn(estimator)(torch.from_numpy(x)).numpy()
    f = estimator.decision_function(x)
    assert np.allclose(outputs[:, -1] - outputs[:, 0], f if f.ndim == 1 else f[:, -1] - f[:, 0])
    assert (estimator.classes_[outputs.argmax(axis=1)] == estimator.predict(x)).all()


def test_an_update_of_a_pipeline_in_ten_lines():
    x, y = load_breast_cancer(return_X_y=True)
    old, new = (
        make_pipeline(StandardScaler(), LogisticRegression()).fit(x[part], y[part])
        for part in (slice(0, 250), slice(200, 569))
    )
    x, y = torch.from_numpy(StandardScaler().fit_transform(x)), torch.from_numpy(y)
    found = diagnose(from_sklearn(old), from_sklearn(new), Sample(x[:250], y[:250]), Sample(x[250:], y[250:]))
    assert math.isfinite(found.emp_shift_ot)
    assert found.model_change > 0


def test_class_names():
    x, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    for kind in (float, np.float32, int):
        assert from_sklearn(LogisticRegression().fit(x / 10, y.astype(kind))).classes == ("0", "1", "2")
    assert from_sklearn(LogisticRegression().fit(x / 10, names)).classes == ("setosa", "versicolor", "virginica")


def test_squared_error():
    x, y = load_diabetes(return_X_y=True)
    y = (y - y.mean()) / y.std()
    model = from_sklearn(Ridge().fit(x, y))
    sample = Sample(torch.from_numpy(x), torch.from_numpy(y))
    found = diagnose(model, model, sample, sample, loss=SquaredError(limit=5.0))
    assert found.model_change == 0
    assert math.isfinite(found.emp_shift_ot)


def test_what_is_refused():
    x, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="LogisticRegression is not fitted"):
        from_sklearn(LogisticRegression())
    with pytest.raises(ValueError, match="StandardScaler has no predict"):
        from_sklearn(StandardScaler().fit(x))
    several = MultiOutputClassifier(DecisionTreeClassifier()).fit(x, np.stack([y, y], axis=1))
    with pytest.raises(ValueError, match="several outputs per row"):
        from_sklearn(several)


@pytest.mark.parametrize(
    "estimator",
    [SVC(decision_function_shape="ovo"), make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo")),
     GridSearchCV(SVC(), {"decision_function_shape": ["ovo"]}, cv=2)],
    ids=["alone", "behind a scaler", "found by a search"],
)  # fmt: skip
def test_margins_between_pairs_of_classes_are_no_class_scores(estimator):
    """Three classes have three pairs, so that the number of columns does not tell."""
    x, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="SVC gives margins between pairs of classes: fit it with decision_function_s"):
        from_sklearn(estimator.fit(x, y))
    assert from_sklearn(estimator.fit(x[:100], y[:100]))(torch.from_numpy(x)).shape == (150, 2)


def test_one_margin_per_class():
    x, y = load_iris(return_X_y=True)
    estimator = SVC().fit(x, y)
    outputs = from_sklearn(estimator)(torch.from_numpy(x)).numpy()
    assert (outputs.argmax(axis=1) == estimator.predict(x)).mean() > 0.98


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "estimator",
    [perceptron(), make_pipeline(StandardScaler(), perceptron()), OneVsRestClassifier(LogisticRegression()),
     perceptron(kind=MLPRegressor), LinearRegression(), LinearRegression(fit_intercept=False), Ridge(),
     RandomForestRegressor(2, random_state=0)],
    ids=str,
)  # fmt: skip
def test_several_outputs_per_row_are_refused(estimator):
    x, y = load_iris(return_X_y=True)
    two = np.stack([y == 0, y > 1], axis=1).astype(int)
    with pytest.raises(ValueError, match="has several outputs per row: diagnose one output at a time"):
        from_sklearn(estimator.fit(x, two))


def test_several_labels_that_only_the_outputs_show():
    x, y = load_iris(return_X_y=True)
    model = from_sklearn(RidgeClassifier().fit(x, np.stack([y == 0, y > 1], axis=1).astype(int)))
    with pytest.raises(ValueError, match=r"gives margins \[150, 2\] for 150 rows and 2 classes"):
        model(torch.from_numpy(x))


def test_a_column_of_targets_is_one_output():
    x, y = load_diabetes(return_X_y=True)
    model = from_sklearn(LinearRegression(fit_intercept=False).fit(x, y[:, None]))
    assert model.network is not None
    alone = LinearRegression(fit_intercept=False).fit(x, y)
    assert np.allclose(model(torch.from_numpy(x))[:, 0].detach().numpy(), alone.predict(x))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_poisson_perceptron_predicts_what_it_predicts():
    x, y = load_diabetes(return_X_y=True)
    estimator = perceptron(kind=MLPRegressor).set_params(loss="poisson").fit(x, y / 100)
    assert estimator.out_activation_ == "exp"
    model = from_sklearn(estimator)
    assert model.network is None
    assert model.classes is None
    assert np.allclose(model(torch.from_numpy(x))[:, 0].numpy(), estimator.predict(x))


def test_the_global_random_state_is_left_alone():
    x, y = load_iris(return_X_y=True)
    estimator = LogisticRegression().fit(x / 10, y)
    before = torch.random.get_rng_state()
    from_sklearn(estimator)
    assert torch.equal(torch.random.get_rng_state(), before)
