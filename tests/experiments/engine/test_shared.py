"""`shared`: computed once by whoever comes first, found by content, damaged files computed again."""

import multiprocessing
import os
import shutil
from typing import NamedTuple

import pytest
import torch

from experiments.engine.leases import acquire
from experiments.engine.shared import shared, tensor_digest


class Pair(NamedTuple):
    x: torch.Tensor
    value: float


def count(calls, value):
    def compute():
        calls.append(value)
        return value

    return compute


def test_the_second_run_finds_what_the_first_computed(tmp_path):
    calls = []
    made = Pair(torch.arange(3.0), 0.5)
    for _ in range(3):
        found = shared(tmp_path, "pair", {"seed": 1, "eps": 0.1}, count(calls, made), classes=(Pair,))
        assert torch.equal(found.x, made.x)
        assert found.value == 0.5
    assert calls == [made]


@pytest.mark.parametrize("key", [{"seed": 2}, {"seed": 1, "more": 0}, {"seed": 1.5}])
def test_another_key_is_another_value(tmp_path, key):
    calls = []
    shared(tmp_path, "a", {"seed": 1}, count(calls, 1))
    assert shared(tmp_path, "a", key, count(calls, 2)) == 2
    assert shared(tmp_path, "b", {"seed": 1}, count(calls, 3)) == 3, "another kind is another value"


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-3], lambda b: b[:100] + b"x" + b[101:], lambda b: b"", lambda b: b"a"]
)
def test_a_damaged_file_is_computed_again(tmp_path, damage, capsys):
    calls = []
    shared(tmp_path, "a", {}, count(calls, [1.0, 2.0]))
    (path,) = tmp_path.glob("a/*.pt")
    path.write_bytes(damage(path.read_bytes()))
    assert shared(tmp_path, "a", {}, count(calls, [1.0, 2.0])) == [1.0, 2.0]
    assert len(calls) == 2
    assert "was damaged and is computed again" in capsys.readouterr().err
    assert shared(tmp_path, "a", {}, count(calls, [3.0])) == [1.0, 2.0]


def test_a_class_that_is_not_named_is_refused_before_it_is_stored(tmp_path):
    with pytest.raises(Exception, match="Pair"):
        shared(tmp_path, "pair", {}, lambda: Pair(torch.ones(1), 1.0))
    assert not list(tmp_path.glob("pair/*.pt"))


def test_a_failure_stores_nothing(tmp_path):
    def fail():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        shared(tmp_path, "a", {}, fail)
    assert shared(tmp_path, "a", {}, lambda: 4) == 4


def share(folder, log, others, started):
    """Compute until everybody else has begun to wait, or has computed too."""

    def compute():
        with open(log, "a") as file:
            file.write(f"{os.getpid()}\n")
        for _ in range(others):
            started.acquire()
        return 7

    started.release()
    assert shared(folder, "a", {"k": 1}, compute) == 7


def test_several_processes_compute_once(tmp_path):
    context, log = multiprocessing.get_context("spawn"), tmp_path / "log"
    started = context.Semaphore(0)
    workers = [context.Process(target=share, args=(tmp_path, log, 3, started)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert len(log.read_text().splitlines()) == 1
    assert [path.suffix for path in (tmp_path / "a").iterdir()] == [".pt"]


def test_of_two_that_compute_after_all_the_first_decides(tmp_path):
    """As where the first was paused for so long that it was taken for gone."""
    calls = []

    def paused():
        (lease,) = tmp_path.glob("a/*.lease")
        shutil.rmtree(lease)
        assert shared(tmp_path, "a", {}, count(calls, 2.0)) == 2.0
        return 1.0

    assert shared(tmp_path, "a", {}, paused) == 2.0
    assert shared(tmp_path, "a", {}, count(calls, 3.0)) == 2.0
    assert calls == [2.0]


def test_what_is_there_is_read_without_a_lease(tmp_path):
    assert shared(tmp_path, "a", {}, lambda: 4) == 4
    (path,) = tmp_path.glob("a/*.pt")
    with acquire(path.with_suffix(".lease")):
        assert shared(tmp_path, "a", {}, lambda: 5) == 4


def test_digests_tell_type_shape_and_content_apart():
    x = torch.arange(6.0)
    others = [x.double(), x.reshape(2, 3), x + 1e-6, x[:5]]
    assert len({tensor_digest(x), *map(tensor_digest, others), tensor_digest(x, x)}) == 6
    assert tensor_digest(x.reshape(2, 3).T) == tensor_digest(x.reshape(2, 3).T.contiguous())
