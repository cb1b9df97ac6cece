"""`Context.keep`: arrays beside the record, whole or not at all."""

import numpy as np
import pytest


def test_arrays_come_back_with_their_types(new_context):
    context = new_context()
    arrays = {"x": np.arange(6, dtype=np.float16).reshape(2, 3), "y": np.array([1, 2]), "none": np.empty((0, 3))}
    context.keep("outputs", **arrays)
    found = np.load(context.directory.path / "outputs.npz", allow_pickle=False)
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)


def test_a_later_attempt_replaces_it_whole(new_context):
    context = new_context()
    context.keep("outputs", x=np.zeros(2), old=np.ones(1))
    context.keep("outputs", x=np.ones(3))
    found = np.load(context.directory.path / "outputs.npz")
    assert list(found) == ["x"]
    assert found["x"].tolist() == [1, 1, 1]
    context.keep("other", x=np.zeros(1))
    assert sorted(path.name for path in context.directory.path.glob("*.npz")) == ["other.npz", "outputs.npz"]


def test_what_cannot_be_read_back_safely_is_refused_and_leaves_what_was_there(new_context):
    context = new_context()
    context.keep("outputs", x=np.zeros(2))
    with pytest.raises(ValueError, match=r"[Oo]bject arrays cannot be saved"):
        context.keep("outputs", x=np.array([{}, []], dtype=object))
    assert [path.name for path in context.directory.path.iterdir()] == ["outputs.npz"]
    assert np.load(context.directory.path / "outputs.npz")["x"].tolist() == [0, 0]
