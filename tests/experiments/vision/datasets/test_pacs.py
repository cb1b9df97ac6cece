"""PACS: a copy that is checked by counts and digests, splits that follow from the names, and a fetch by git."""

import hashlib
import shutil
import subprocess

import pytest

from experiments.__main__ import main
from experiments.engine.errors import UserError
from experiments.vision.datasets import pacs
from experiments.vision.datasets.pacs import CLASSES, DOMAINS, PublishedDomain, ensure, fetch, splits_of, tree_digest
from experiments.vision.images import load_dataset, split_file
from tests.experiments.vision.trees import drawing
from trace.io.splits import read_split, split_text

COUNTS = (6, 4, 5, 3, 4, 7, 20)
STYLES = {"photo": "real", "sketch": "sketch"}
"""Two domains, drawn as those of another tree."""


@pytest.fixture
def tree(tmp_path):
    """A small copy in the published layout."""
    folder = tmp_path / "repository" / "PACS"
    for domain, style in STYLES.items():
        for label, (name, count) in enumerate(zip(CLASSES, COUNTS, strict=True)):
            (folder / domain / name).mkdir(parents=True)
            for i in range(count):
                drawing(style, label % 6, i).save(folder / domain / name / f"{i:03}.png")
    return folder


@pytest.fixture
def published(tree):
    """What there is to know about it."""
    known = {}
    for domain in STYLES:
        paths = [p.relative_to(tree / domain).as_posix() for p in (tree / domain).rglob("*.png")]
        texts = "".join(split_text(entries) for entries in splits_of(domain, paths).values())
        known[domain] = PublishedDomain(COUNTS, tree_digest(tree / domain), hashlib.sha256(texts.encode()).hexdigest())
    return known


def test_the_table_holds_what_was_published():
    assert {domain: sum(known.counts) for domain, known in DOMAINS.items()} == {
        "photo": 1670,
        "art_painting": 2048,
        "cartoon": 2344,
        "sketch": 3929,
    }
    assert len({digest for known in DOMAINS.values() for digest in known[1:]}) == 8


def test_splits_are_ours_stratified_and_every_image_stands_in_one(tree, published):
    assert ensure(tree, STYLES, published=published) == ("photo", "sketch")
    data = load_dataset("pacs", root=tree)
    assert (data.domains, data.splits, data.classes) == (("sketch", "photo"), ("train", "val", "test"), CLASSES)
    for domain in STYLES:
        parts = {split: data.images(domain, split) for split in data.splits}
        named = sorted(path for part in parts.values() for path in part.paths)
        assert named == sorted(p.relative_to(tree).as_posix() for p in (tree / domain).rglob("*.png"))
        for label, count in enumerate(COUNTS):
            sizes = [part.labels.count(label) for part in parts.values()]
            assert sizes == [round(0.5 * count), round(0.65 * count) - round(0.5 * count), count - round(0.65 * count)]


def test_splits_do_not_follow_the_order_of_names(tree):
    """Neighbours by name are often the same thing: a cut through the sorted names would part them by the subject."""
    paths = [f"person/{i:03}.png" for i in range(200)]
    own = [entry.path for entry in splits_of("photo", paths)["train"]]
    assert 30 < sum(path < "photo/person/100" for path in own) < 70
    assert splits_of("photo", reversed(paths)) == splits_of("photo", paths)
    assert splits_of("sketch", paths)["train"] != own


DAMAGES = {
    r"photo holds 5 of dog instead of 6: move .*photo away": lambda t: (t / "photo" / "dog" / "002.png").unlink(),
    r"photo holds 1 of cat instead of 0, 5 of dog instead of 6": lambda t: shutil.move(
        t / "photo" / "dog" / "002.png", (t / "photo" / "cat").mkdir() or t / "photo" / "cat" / "1.png"
    ),
    r"photo has the digest \w+ instead of": lambda t: shutil.copy(
        t / "photo" / "dog" / "001.png", t / "photo" / "dog" / "002.png"
    ),
    r"holds no photo: get it with `python -m experiments data pacs --download`": lambda t: shutil.rmtree(t / "photo"),
    r"photo_val.txt is not our split of photo: move it away": lambda t: split_file(t, "photo", "val").write_text(""),
}


@pytest.mark.parametrize("message", DAMAGES)
def test_another_copy_is_refused(tree, published, message):
    DAMAGES[message](tree)
    with pytest.raises(UserError, match=message):
        ensure(tree, STYLES, published=published)


def test_other_splits_than_the_published_ones_are_refused(tree, published):
    changed = {**published, "sketch": published["sketch"]._replace(splits="0" * 64)}
    with pytest.raises(UserError, match="the splits of sketch have the digest"):
        ensure(tree, STYLES, published=changed)
    with pytest.raises(UserError, match="pacs has no domain 'quickdraw': it has photo, sketch"):
        ensure(tree, ["quickdraw"], published=published)


@pytest.fixture
def home(tree):
    """The same as a git repository."""
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "--quiet"], ["add", "."], [*who, "commit", "--quiet", "--message", "data"]):
        subprocess.run(["git", *arguments], cwd=tree.parent, check=True)
    return f"file://{tree.parent}"


def test_a_fetched_copy_is_checked_before_it_appears(tmp_path, home, tree, published):
    folder = tmp_path / "data" / "pacs"
    wrong = {**published, "sketch": published["sketch"]._replace(images="0" * 64)}
    with pytest.raises(UserError, match="sketch has the digest"):
        fetch(folder, home=home, published=wrong)
    assert not list(folder.parent.iterdir())
    fetch(folder, home=home, published=published)
    assert [p.name for p in folder.parent.iterdir()] == ["pacs"]
    for domain in STYLES:
        assert tree_digest(folder / domain) == tree_digest(tree / domain)
        assert read_split(split_file(folder, domain, "test"))


def test_a_fetch_that_fails_is_one_sentence(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"git cannot fetch .*nowhere \(.*\): check your network, or name a copy"):
        fetch(tmp_path / "pacs", home=f"file://{tmp_path}/nowhere")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="there is no git"):
        fetch(tmp_path / "pacs")


def test_the_command_checks_a_clone_and_names_it_for_the_studies(tree, published, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("TRACE_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(pacs, "DOMAINS", published)
    monkeypatch.setitem(pacs.ensure.__kwdefaults__, "published", published)
    main(["data", "pacs", "--root", str(tree.parent), "--images"])
    page = capsys.readouterr().out
    assert f"pacs is looked for in {tree}" in page
    assert f"root: {tree}" in page
    assert [line.split() for line in page.splitlines() if line.startswith("photo")] == [
        ["photo", "train", "25", "-", "7", "0", "0"],
        ["photo", "val", "8", "-", "6", "0", "0"],
        ["photo", "test", "16", "-", "7", "0", "0"],
    ]
    with pytest.raises(SystemExit, match="holds no photo"):
        main(["data", "pacs"])
