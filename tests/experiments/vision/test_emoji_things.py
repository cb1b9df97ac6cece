"""Things: one key for every spelling, one identity for every gender, and splits that keep them together."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.vision.emoji_things import CLASSES, SHARES, SUBGROUPS, Thing, key_of, split_up, together


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
