"""`python -m experiments data`: what is printed, and that a copy that is not whole fails."""

import pytest

from experiments.__main__ import main
from experiments.vision.datasets import domainnet, emoji
from experiments.vision.images import load_dataset
from tests.experiments.vision.emoji_packages import fake_artists
from tests.experiments.vision.trees import domainnet_tree


def test_a_whole_folder_of_ones_own(tmp_path, capsys):
    tree = domainnet_tree(tmp_path / "tree")
    (tmp_path / "own.yaml").write_text(f"name: own\nroot: {tree}\ndomains: [real, sketch]\n")
    main(["data", str(tmp_path / "own.yaml"), "--images"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["real", "train", "12", "-", "6", "0", "0"]
    assert len(lines) == 5


def test_a_copy_that_is_not_whole_fails(tmp_path, capsys):
    root = domainnet_tree(tmp_path, absent=1)
    with pytest.raises(SystemExit, match=r"domainnet is not whole \(3 problems above\)"):
        main(["data", "domainnet", "--root", str(root), "--domains", "real"])
    page = capsys.readouterr().out
    assert "real train lists 12 images, 120,906 are expected" in page
    assert "real train: 1 images are absent (real/aircraft_carrier/real_001_000001.jpg)" in page
    assert page.splitlines()[2].split()[-1] == "-"


def test_emoji_is_built_and_then_checked(tmp_path, monkeypatch, capsys):
    sources = fake_artists(tmp_path / "sources")
    monkeypatch.setenv("TRACE_DATA", str(tmp_path / "data"))
    build = emoji.build
    monkeypatch.setattr(emoji, "build", lambda root, domains: build(root, domains=domains, **sources))
    main(["data", "emoji"])
    first = capsys.readouterr().out
    assert f"emoji is in {tmp_path / 'data' / 'emoji-1'}" in first
    assert len(first.splitlines()) == 11
    monkeypatch.setattr(emoji, "build", None)
    main(["data", "emoji"])
    assert capsys.readouterr().out == first


def test_other_artists_come_with_the_file_that_names_them(tmp_path, monkeypatch, capsys):
    sources = fake_artists(tmp_path / "sources")
    monkeypatch.setenv("TRACE_DATA", str(tmp_path / "data"))
    build = emoji.build
    monkeypatch.setattr(emoji, "build", lambda root, domains: build(root, domains=domains, **sources))
    main(["data", "emoji", "--domains", "real", "sketch"])
    before, page = capsys.readouterr().out.split("\n\n")[:2]
    assert "configs/data/emoji-1-real-sketch.yaml" in before
    assert "data=emoji-1-real-sketch source=real target=sketch" in before
    (tmp_path / "emoji-1-real-sketch.yaml").write_text(page)
    found = load_dataset(str(tmp_path / "emoji-1-real-sketch.yaml"))
    assert (found.name, found.domains) == ("emoji-1-real-sketch", ("real", "sketch"))
    assert found.images("sketch", "test").paths


def test_download_is_asked_for(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(domainnet, "fetch_domains", lambda root, domains: asked.append((root, domains)))
    with pytest.raises(SystemExit, match="holds no domainnet"):
        main(["data", "domainnet", "--root", str(tmp_path)])
    assert asked == []
    with pytest.raises(SystemExit, match="holds no domainnet"):
        main(["data", "domainnet", "--root", str(tmp_path), "--download", "--domains", "sketch"])
    assert asked == [(tmp_path, ("sketch",))]
    with pytest.raises(SystemExit, match="leave --download out"):
        main(["data", "emoji", "--download"])
