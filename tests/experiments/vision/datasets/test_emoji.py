"""The emoji data set from tiny packages: what is built, what is dropped, and what is never reused."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from experiments.engine.errors import UserError
from experiments.vision.datasets import emoji
from experiments.vision.datasets.emoji import (
    ARTISTS,
    CLASSES,
    MANIFEST,
    SHARES,
    SIZE,
    SUBGROUPS,
    Thing,
    build,
    ensure,
    folder_of,
    is_blank,
    key_of,
    picture,
    split_up,
    together,
    verify,
)
from experiments.vision.images import load_dataset
from tests.experiments.vision.emoji_packages import (
    ANIMALS,
    CIRCLES,
    EMPTY,
    FARMERS,
    KEYCAP,
    RUNNERS,
    UNDRAWN,
    fake_artists,
    rect,
    svg,
)
from trace.io.images import open_image


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return fake_artists(tmp_path_factory.mktemp("sources") / "tarballs")


@pytest.fixture
def built(tmp_path, sources):
    root = tmp_path / "data" / "emoji-1"
    build(root, **sources)
    return root


def placed(root):
    """Split and class of every key, for each domain."""
    data = load_dataset("emoji", root=root)
    return {
        domain: {
            path.split("/")[-1].removesuffix(".png"): (split, data.classes[label])
            for split in data.splits
            for path, label in zip(*data.images(domain, split)[4:6], strict=True)
        }
        for domain in data.domains
    }


def test_every_artist_has_the_same_things_in_the_same_splits(built):
    real, painting, sketch = placed(built).values()
    assert real == painting == sketch
    assert set(real) == {key_of(code) for code in [*ANIMALS, *FARMERS, *RUNNERS, *CIRCLES, KEYCAP]}
    assert key_of(EMPTY) not in real
    assert key_of(UNDRAWN) not in real
    assert {label for _, label in real.values()} == {"animal", "person", "geometric", "text"}


def test_labels_are_those_of_all_classes(built):
    data = load_dataset("emoji", root=built)
    keycaps = [split for split in data.splits if CLASSES.index("text") in data.images("real", split).labels]
    assert len(keycaps) == 1
    assert data.splits == ("train", "val", "test")


def test_one_identity_and_equal_drawings_stay_in_one_split(built):
    where = placed(built)["real"]
    for family in (FARMERS, RUNNERS, CIRCLES):
        assert len({where[key_of(code)] for code in family}) == 1
    identities = {}
    for key, (split, label) in where.items():
        assert identities.setdefault(Thing(key, label).identity, split) == split
    assert {split for split, label in where.values() if label == "animal"} == {"train", "val", "test"}


def test_pictures_are_squares_on_white(built):
    for path in built.rglob("*.png"):
        image = open_image(path)
        assert image.size == (SIZE, SIZE)
        assert image.getpixel((SIZE - 1, SIZE - 1)) == (255, 255, 255)
        assert not is_blank(image)


def test_the_manifest_says_what_it_is_made_of(built, sources):
    manifest = verify(built)
    assert manifest["things"] == len(placed(built)["real"])
    assert manifest["dropped"] == [key_of(EMPTY)]
    assert {p["name"]: p["sha256"] for p in manifest["packages"]} == {
        package.name: package.sha256
        for package in (sources["labels"], *(a.package for a in sources["artists"].values()))
    }
    assert sum(manifest["counts"]["sketch train"].values()) == len(
        load_dataset("emoji", root=built).images("sketch", "train").paths
    )
    assert [p.name for p in built.parent.iterdir()] == [built.name]


def test_building_again_gives_the_same_splits(built, tmp_path, sources):
    build(tmp_path / "again", **sources)
    assert verify(tmp_path / "again")["digests"] == verify(built)["digests"]


def test_a_wrong_checksum_stops_and_leaves_nothing(tmp_path, sources):
    artists = sources["artists"]
    forged = artists["real"]._replace(package=artists["real"].package._replace(sha256="0" * 64))
    with pytest.raises(UserError, match=r"fluent@1\.0\.0 has SHA-256 .* instead of 0000.*do not trust"):
        build(tmp_path / "data" / "emoji-1", **{**sources, "artists": {**artists, "real": forged}})
    assert not any((tmp_path / "data").iterdir())


def test_an_interrupted_build_leaves_nothing(tmp_path, sources, monkeypatch):
    pictures = iter(range(5))

    def interrupted(drawing, size):
        if next(pictures, None) is None:
            raise KeyboardInterrupt
        return picture(drawing, size)

    monkeypatch.setattr(emoji, "picture", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "data" / "emoji-1", **sources)
    assert not any((tmp_path / "data").iterdir())


def test_a_place_that_cannot_be_written_is_named(tmp_path, sources):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/emoji-1 cannot be written .*--root"):
        build(tmp_path / "file" / "emoji-1", **sources)


def test_an_unknown_artist_is_answered(tmp_path, sources):
    with pytest.raises(UserError, match="nobody draws 'picasso': emoji domains are real, painting, sketch"):
        build(tmp_path / "emoji", domains=("real", "picasso"), **sources)


def damage_image(root):
    path = next(root.glob("sketch/animal/*.png"))
    path.write_bytes(path.read_bytes()[:-5])


def delete_image(root):
    next(root.glob("real/*/*.png")).unlink()


def move_to_train(root):
    with open(root / "real_train.txt", "a") as file:
        file.write((root / "real_test.txt").read_text())


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (damage_image, r"differs from its manifest \(sketch "),
        (delete_image, "is no whole emoji data set .*names 1 of"),
        (move_to_train, r"differs from its manifest \(real train\)"),
        (lambda root: (root / MANIFEST).unlink(), "is no whole emoji data set"),
        (lambda root: (root / MANIFEST).write_text("{"), r"manifest\.json is damaged"),
        (lambda root: (root / MANIFEST).write_text("{}"), r"manifest\.json is damaged"),
    ],
)
def test_what_was_changed_is_refused(built, harm, message):
    harm(built)
    with pytest.raises(UserError, match=message + ".*build it again with `python -m experiments data emoji`"):
        ensure(built)


def test_it_is_built_once_and_then_only_checked(tmp_path, monkeypatch, sources):
    monkeypatch.setenv("TRACE_DATA", str(tmp_path))
    calls = []

    def counted(root, *, domains):
        calls.append(domains)
        return build(root, domains=domains, **sources)

    monkeypatch.setattr(emoji, "build", counted)
    assert ensure() == ensure() == ensure(domains=emoji.DOMAINS) == tmp_path / "emoji-1"
    other = ensure(domains=("real", "sketch"))
    assert other == folder_of(("real", "sketch")) == tmp_path / "emoji-1-real-sketch"
    assert calls == [emoji.DOMAINS, ("real", "sketch")]
    with pytest.raises(UserError, match="holds real, sketch: name these domains"):
        ensure(other, domains=emoji.DOMAINS)
    (tmp_path / "empty").mkdir()
    assert load_dataset("emoji", root=ensure(tmp_path / "empty")).domains == emoji.DOMAINS


def test_drawings_keep_their_proportions(tmp_path):
    wide = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 20 10"><rect width="20" height="10"/></svg>'
    tall = wide.replace("0 0 20 10", "0 0 10 20").replace('width="20" height="10"', 'width="10" height="20"')
    for text, inside, outside in ((wide, (5, 50), (50, 5)), (tall, (50, 5), (5, 50))):
        image = picture(text, 100)
        assert image.size == (100, 100)
        assert image.getpixel(inside) == (0, 0, 0)
        assert image.getpixel(outside) == (255, 255, 255)
    (tmp_path / "one.svg").write_text(svg(rect(3, "#102030", fill=True)))
    assert picture(tmp_path / "one.svg", 72).getpixel((20, 10)) == (16, 32, 48)
    assert is_blank(picture(svg(""), 10))
    assert not is_blank(Image.linear_gradient("L").convert("RGB"))


def test_five_artists_are_known():
    assert list(ARTISTS) == ["real", "painting", "sketch", "twemoji", "openmoji-color"]
    assert all(len(artist.package.sha256) == 64 for artist in ARTISTS.values())


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("1F600", "1f600"),
        ("0031-FE0F-20E3", "31-20e3"),
        ("31-20e3", "31-20e3"),
        ("1F3C3-200D-2640-FE0F", "1f3c3-200d-2640"),
        ("00a9-fe0e", "a9"),
    ],
)
def test_every_spelling_has_one_key(written, key):
    assert key_of(written) == key


@pytest.mark.parametrize(
    "same",
    [
        ("1f468-200d-1f33e", "1f469-200d-1f33e", "1f9d1-200d-1f33e"),
        ("1f3c3", "1f3c3-200d-2640", "1f3c3-200d-2642"),
        ("1f468", "1f469", "1f9d1"),
        ("1f385", "1f936", "1f9d1-200d-1f384"),
        ("1f934", "1f478", "1fac5"),
    ],
)
def test_gender_does_not_make_another_thing(same):
    assert len({Thing(key, "person").identity for key in same}) == 1


def test_what_a_person_holds_is_another_thing():
    farmer, rice = Thing("1f468-200d-1f33e", "person"), Thing("1f33e", "plant")
    assert farmer.identity != rice.identity


def test_no_subgroup_stands_in_two_classes():
    counts = Counter(name for subgroups in SUBGROUPS.values() for name in subgroups.split())
    assert max(counts.values()) == 1
    assert len(CLASSES) == 20


def test_equal_pictures_chain_groups():
    things = [Thing(key, "heart") for key in ("a", "b", "c", "d", "e")]
    marks = {"a": ["1"], "b": ["2"], "c": ["2", "1"], "d": ["3"], "e": ["4"]}
    groups = together(things, marks)
    assert sorted([thing.key for thing in group] for group in groups) == [["a", "b", "c"], ["d"], ["e"]]


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from("xyz"), st.integers(0, 20)), max_size=40, unique_by=str))
def test_a_group_is_never_torn_and_nothing_is_lost(rows):
    things = [Thing(f"{code:x}-200d-{number:x}", label) for number, (code, label, _) in enumerate(rows)]
    marks = {thing.key: [f"{row[2]}"] for thing, row in zip(things, rows, strict=True)}
    groups = together(things, marks)
    assert sorted(thing for group in groups for thing in group) == sorted(things)
    splits = split_up(groups)
    assert sorted(thing for members in splits.values() for thing in members) == sorted(things)
    where = {thing: split for split, members in splits.items() for thing in members}
    by_mark = {}
    for thing in things:
        for mark in (thing.identity, *marks[thing.key]):
            assert by_mark.setdefault(mark, where[thing]) == where[thing]


def test_every_class_is_shared_out_and_the_order_does_not_matter():
    things = [Thing(f"{number:x}", name) for name, size in (("face", 40), ("time", 20)) for number in range(size)]
    groups = [[thing] for thing in things]
    splits = split_up(groups)
    for name, size in (("face", 40), ("time", 20)):
        counts = Counter(split for split, members in splits.items() for thing in members if thing.label == name)
        assert counts == {split: share * size for split, share in SHARES.items()}
    random.Random(0).shuffle(groups)
    assert split_up(groups) == splits
    assert [int(thing.key, 16) for thing in splits["train"][:20]] != list(range(20))
