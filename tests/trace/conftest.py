"""A small update on disk, and the command as a function."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from trace.tool.cli import main

WEIGHTS = {"old": [[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]], "new": [[-0.5, 0.4, 0.0], [1.5, 0.0, 0.2]]}


def rows(n, shift, seed):
    """Two classes along the first axis, moved by ``shift``."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 2, n)
    x = generator.normal(size=(n, 3)).astype(np.float32)
    x[:, 0] += 2 * y - 1 + shift
    return x, y


class Net(nn.Module):
    """A linear model with a hidden layer of its own, so that it has a submodule to watch."""

    def __init__(self, weights):
        super().__init__()
        self.hidden = nn.Linear(3, 3, bias=False)
        self.head = nn.Linear(3, 2, bias=False)
        with torch.no_grad():
            self.hidden.weight.copy_(torch.eye(3))
            self.head.weight.copy_(torch.tensor(weights))

    def forward(self, x):
        return self.head(self.hidden(x))


def net(name):
    return Net(WEIGHTS[name])


@pytest.fixture(scope="session")
def update(tmp_path_factory):
    """A folder with ``old.pt``, ``new.pt``, and ``source``, ``target``, ``test`` as inputs and as saved outputs."""
    folder = tmp_path_factory.mktemp("update")
    for name in WEIGHTS:
        with pytest.warns(FutureWarning, match="torch.jit"):
            torch.jit.script(net(name)).save(folder / f"{name}.pt")
    for name, n, shift, seed in (("source", 200, 0.0, 0), ("target", 160, 0.5, 1), ("test", 300, 0.0, 2)):
        x, y = rows(n, shift, seed)
        np.savez(folder / f"{name}.npz", x=x, y=y)
        logits = {key: net(model)(torch.from_numpy(x)).detach().numpy()
                  for key, model in (("logits", "old"), ("new_logits", "new"))}  # fmt: skip
        np.savez(folder / f"{name}_logits.npz", features=x, y=y, **logits)
    return folder


@pytest.fixture
def tool(capsys):
    """Run a command: exit code, standard output and standard error."""

    def run(*arguments):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as leaving:
            code = leaving.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def diagnosed(tool):
    """The JSON of a diagnose command that succeeds."""

    def run(*arguments):
        code, out, err = tool("diagnose", *arguments, "--json", "-")
        assert code == 0, err
        return json.loads(out)

    return run


@pytest.fixture(scope="module")
def x():
    return torch.from_numpy(rows(30, 0.0, 0)[0])
