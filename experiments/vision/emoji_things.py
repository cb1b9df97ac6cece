"""The things that the emoji artists drew: their names, classes and identities, and splits that keep a thing together.

A thing's key is its code points in lower case, without variation selectors and leading zeros: artists differ in those.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

SHARES = {"train": 0.50, "val": 0.15, "test": 0.35}

SUBGROUPS = {
    "animal": "animal-mammal animal-bird animal-marine animal-reptile animal-amphibian animal-bug",
    "clothing": "clothing",
    "electronics": "computer phone light-video sound",
    "face": "face-smiling face-affection face-tongue face-hand face-neutral-skeptical face-sleepy face-unwell face-hat "
    "face-glasses face-concerned face-negative face-costume",
    "food": "food-fruit food-vegetable food-prepared food-asian food-sweet drink dishware",
    "geometric": "geometric",
    "hand": "hand-fingers-open hand-fingers-partial hand-fingers-closed hand-single-finger hand-prop hands",
    "heart": "heart emotion",
    "object": "tool science medical household other-object lock",
    "person": "person person-role person-fantasy person-activity person-resting person-gesture",
    "person-sport": "person-sport",
    "place": "place-building place-religious place-geographic place-map place-other hotel",
    "plant": "plant-flower plant-other",
    "sign": "arrow av-symbol transport-sign warning religion zodiac",
    "sky": "sky-weather",
    "sport": "sport award-medal",
    "stationery": "office writing book-paper mail money",
    "text": "alphanum keycap punctuation math",
    "time": "time",
    "transport": "transport-ground transport-air transport-water",
}
"""Subgroups of OpenMoji by class."""

CLASSES = tuple(sorted(SUBGROUPS))
_CLASS_OF = {subgroup: name for name, subgroups in SUBGROUPS.items() for subgroup in subgroups.split()}

_VARIATION = {"fe0e", "fe0f"}
_SIGNS = {"200d", "2640", "2642"}
"""The joiner, and the signs that make a person a woman or a man."""
_NEUTRAL = {
    "1f468": "1f9d1", "1f469": "1f9d1",  # man, woman: person
    "1f466": "1f9d2", "1f467": "1f9d2",  # boy, girl: child
    "1f474": "1f9d3", "1f475": "1f9d3",  # old man, old woman: older person
    "1f934": "1fac5", "1f478": "1fac5",  # prince, princess: person with crown
    "1f57a": "1f483",  # man dancing: woman dancing
    "1f930": "1fac4", "1fac3": "1fac4",  # pregnant woman, man: person
    "1f385": "1f9d1-1f384", "1f936": "1f9d1-1f384",  # Santa, Mrs Claus: Mx Claus
}  # fmt: skip


class Thing(NamedTuple):
    """Something that every artist drew."""

    key: str
    label: str
    """Its class."""

    @property
    def identity(self) -> str:
        """What it is, whoever it shows: a woman farmer, a man farmer and a farmer are one."""
        parts = (part for part in self.key.split("-") if part not in _SIGNS)
        return "-".join(_NEUTRAL.get(part, part) for part in parts)


def key_of(code_points: str) -> str:
    """The key of ``1F468-200D-FE0F``, however an artist wrote it."""
    parts = (part.lstrip("0") for part in code_points.lower().split("-"))
    return "-".join(part for part in parts if part not in _VARIATION)


def things_of(openmoji: Path) -> list[Thing]:
    """The things of our classes in OpenMoji's list: no skin tones, nothing that OpenMoji added to Unicode."""
    rows = json.loads((openmoji / "data" / "openmoji.json").read_text(encoding="utf-8"))
    chosen = (
        row
        for row in rows
        if row["skintone"] == "" and not row["group"].startswith("extras-") and row["subgroups"] in _CLASS_OF
    )
    return sorted(Thing(key_of(row["hexcode"]), _CLASS_OF[row["subgroups"]]) for row in chosen)


def together(things: Sequence[Thing], fingerprints: Mapping[str, Iterable[str]]) -> list[list[Thing]]:
    """Groups that must not be torn apart: one identity, or the same picture in some domain.

    ``fingerprints`` holds the pictures' hashes by key; equal ones must mean equal pictures.
    """
    group_of: dict[str, list[Thing]] = {}
    for thing in things:
        marks = [f"thing {thing.identity}", *(f"picture {mark}" for mark in fingerprints[thing.key])]
        met = {id(group_of[mark]): group_of[mark] for mark in marks if mark in group_of}
        merged = [thing, *(member for group in met.values() for member in group)]
        old = [mark for mark, group in group_of.items() if id(group) in met]
        group_of.update(dict.fromkeys([*old, *marks], merged))
    return [sorted(group) for group in {id(group): group for group in group_of.values()}.values()]


def split_up(groups: Iterable[Sequence[Thing]]) -> dict[str, list[Thing]]:
    """Train, val and test in their shares of every class; each group goes to the split that lacks most.

    Large groups come first, equal ones in the order of a hash of their identity: the same things always fall alike.
    """
    by_class: dict[str, list[Sequence[Thing]]] = {}
    for group in groups:
        by_class.setdefault(Counter(thing.label for thing in group).most_common(1)[0][0], []).append(group)
    splits: dict[str, list[Thing]] = {split: [] for split in SHARES}
    for name in sorted(by_class):
        lacking = {split: share * sum(map(len, by_class[name])) for split, share in SHARES.items()}
        for group in sorted(by_class[name], key=lambda group: (-len(group), _shuffled(group[0]))):
            chosen = max(lacking, key=lambda split: lacking[split])
            lacking[chosen] -= len(group)
            splits[chosen].extend(group)
    return {split: sorted(things) for split, things in splits.items()}


def _shuffled(thing: Thing) -> str:
    return hashlib.sha256(thing.identity.encode()).hexdigest()
