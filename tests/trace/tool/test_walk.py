"""A walk as a new user takes it: the wheel and nothing of the repository, an empty folder, updates of every kind."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from trace.report.brief import LINES

ROOT = Path(__file__).parents[3]
SAMPLES = ("--source", "old.npz", "--source-val", "old_held.npz", "--target", "new.npz", "--target-val", "new_held.npz")
MAKE = """
import os
import numpy as np, skops.io, torch
from PIL import Image
from sklearn.ensemble import RandomForestClassifier
from torch import nn

rng = np.random.default_rng(0)
parts = {}
for name, shift, n in (("old", 0, 200), ("old_held", 0, 300), ("new", 0.7, 200), ("new_held", 0.7, 150)):
    x = (rng.normal(size=(n, 3)) + shift).astype("float32")
    parts[name] = x, (x[:, 0] + 0.3 * rng.normal(size=n) > shift / 2).astype(int)
    np.savez(name, x=parts[name][0], y=parts[name][1])
models = {}
for name in ("old", "new"):
    x, y = parts[name]
    skops.io.dump(RandomForestClassifier(10, random_state=0).fit(x, y), name + ".skops")
    models[name] = nn.Linear(3, 2)
    models[name].weight.data = torch.tensor([[-3.0, 0, 0], [3.0, 0, 0.5 * (name == "new")]])
    torch.save(models[name].state_dict(), name + ".pth")
for name, (x, y) in parts.items():
    old, new = (models[which](torch.tensor(x)).detach().numpy() for which in ("old", "new"))
    np.savez(name + "_logits", y=y, logits=old, new_logits=new)
for domain, noise in (("photos", 40), ("photos_held", 40), ("sketches", 90)):
    for label, colour in (("blue", (60, 60, 200)), ("red", (200, 60, 60))):
        os.makedirs(f"{domain}/{label}")
        for i in range(60):
            pixels = np.array(colour) + rng.normal(0, noise, (16, 16, 3)) + rng.normal(0, noise, 3)
            Image.fromarray(pixels.clip(0, 255).astype("uint8")).save(f"{domain}/{label}/{i}.png")
"""
MINE = """
import torch
from torch import nn

def network():
    return nn.Linear(3, 2)

class Redder(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        red, blue = x[:, 0].mean((1, 2)), x[:, 2].mean((1, 2))
        return 5 * torch.stack([blue, self.scale * red], dim=1)

def old():
    return Redder(1.0)

def new():
    return Redder(0.9)
"""
UPDATES = {
    "scikit-learn": ("--model", "old.skops", "--new-model", "new.skops", *SAMPLES),
    "torch": ("--model", "old.pth", "--new-model", "new.pth", "--arch", "mine:network", "--trust", *SAMPLES),
    "logits": tuple(word.replace(".npz", "_logits.npz") for word in SAMPLES),
    "images": (
        *("--model", "mine:old", "--new-model", "mine:new", "--trust", "--image-size", "16", "--pixels", "unit"),
        *("--source", "photos", "--source-val", "photos_held", "--target", "sketches"),
    ),
}
"""By the kind of model."""


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """`trace-shift` of the unpacked wheel, in a folder that holds models and data alone."""
    tmp = tmp_path_factory.mktemp("walk")
    source, folder = tmp / "source", tmp / "folder"
    shutil.copytree(ROOT / "trace", source / "trace", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp / "site")
    folder.mkdir()
    (folder / "mine.py").write_text(MINE)
    (folder / "junk.npz").write_text("hello")
    (folder / "policy.yaml").write_text("treshold: 0.1\n")
    start = "import sys; sys.argv[0] = 'trace-shift'; from trace_shift.tool.cli import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": str(tmp / "site"), "OMP_NUM_THREADS": "1"}

    def run(*arguments):
        line = [sys.executable, "-c", *arguments] if len(arguments) == 1 else [sys.executable, "-c", start, *arguments]
        done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    code, _, err = run(MAKE)
    assert code == 0, err
    run.folder = folder
    return run


@pytest.mark.parametrize("kind", UPDATES)
def test_every_kind_of_update_has_its_answer_in_a_few_lines(shell, kind):
    page = f"{kind}.html"
    code, out, err = shell("gate", *UPDATES[kind], "--html", page)
    assert (code in (0, 1, 2), err) == (True, "")
    lines = out.splitlines()
    assert len(lines) <= LINES
    assert lines[0].split()[0].rstrip(",") == ("ACCEPT", "REJECT", "INCONCLUSIVE")[code]
    assert lines[1].startswith("Next: ") == (code > 0)
    assert any(line.startswith("Predictions change on ") for line in lines)
    written = (shell.folder / page).read_text()
    assert "Predictions that change" in written
    assert ("data:image/png" in written) == (kind == "images")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("diagnose", *UPDATES["scikit-learn"][:4]), "--source, --target"),
        (("diagnose", "--source", "absent.npz", "--target", "new.npz"), "absent.npz does not exist: check the path"),
        (("diagnose", "--source", "junk.npz", "--target", "new.npz"), "junk.npz is no readable .npz file"),
        (("diagnose", *SAMPLES), "new.npz holds no logits, which must be there without --model"),
        (("gate", "--policy", "policy.yaml", *UPDATES["logits"]), "unknown key 'treshold': did you mean threshold?"),
    ],
)
def test_what_is_wrong_is_one_sentence(shell, arguments, words):
    code, out, err = shell(*arguments)
    assert (code, out) == (3, "")
    assert words in err
    assert err.startswith(f"trace-shift {arguments[0]}: ")
    assert len(err.splitlines()) == (2 if "--help" in err else 1)
