"""Figures that need the images on disk beside the records; they are never part of the repository.

python -m experiments figures --only contact-sheet      # results/images/, which git ignores
"""

from pathlib import Path

import torch
from matplotlib.figure import Figure

from ..engine.errors import UserError
from ..engine.records import Record
from .style import COLUMN, axes, photographs

SHOWN = 8
"""Images of a round."""
STARTS = (0, SHOWN + 1)
"""Columns at which the two rounds begin."""


@photographs("contact-sheet", "active")
def contact_sheet(records: list[Record]) -> Figure:
    """A row a policy: the first images that it chose in its first round, and in its last.

    Of the lowest seed that every policy has.

    Raises:
        UserError: where the images are not there, or are not those of the record.
    """
    from trace.io.images import open_image

    chosen = _one_seed(records)
    widths = {"width_ratios": [1.0] * SHOWN + [0.3] + [1.0] * SHOWN}
    figure, grid = axes(2 * SHOWN + 1, len(chosen), width=2 * COLUMN, height=0.45, squeeze=False, gridspec_kw=widths)
    for line, record in zip(grid, chosen, strict=True):
        config, paths = record["config"], selected_paths(record)
        rounds = (paths[: config["batch"]][:SHOWN], paths[-config["batch"] :][:SHOWN])
        for start, shown in zip(STARTS, rounds, strict=True):
            for ax, path in zip(line[start : start + SHOWN], shown, strict=False):
                ax.imshow(open_image(path).resize((96, 96)))
        for ax in line:
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
        line[0].set_ylabel(config["policy"], rotation=0, ha="right", va="center")
    first = chosen[0]["config"]
    for start, number in zip(STARTS, (1, first["rounds"]), strict=True):
        grid[0][start].set_title(f"round {number}", loc="left")
    figure.suptitle(f"{first['data']}, {first['source']} to {first['target']}, seed {first['seed']}", fontsize=8)
    return figure


def selected_paths(record: Record) -> list[Path]:
    """The images behind ``selected``, which counts this seed's rows of the target's training split, in their order."""
    from ..vision.images import load_dataset
    from ..vision.samples import images_of, own_rows

    config, numbers = record["config"], torch.tensor(record["metrics"]["selected"], dtype=torch.long)
    dataset = load_dataset(config["data"])
    images = images_of(dataset, config["target"], "train", on_broken=config.get("on_broken", "error"))
    own = own_rows(
        torch.tensor(images.labels),
        config["target"],
        seed=config["seed"],
        train_share=config["train_share"],
        hold_out="val" not in dataset.splits,
    ).train
    if len(numbers) and int(numbers.max()) >= len(own):
        raise UserError(
            f"record {record['run_id']} chose row {int(numbers.max())}, and its seed has {len(own)} rows of "
            f"{dataset.root}: fetch the images that it was run on"
        )
    return [dataset.root / images.paths[row] for row in own[numbers].tolist()]


def _one_seed(records: list[Record]) -> list[Record]:
    """One record a policy, in the order of their names, all of one data set and seed."""
    rounds = [r for r in records if not r["config"]["development"]]
    by_key = {(r["config"]["data"], r["config"]["seed"], r["config"]["policy"]): r for r in rounds}
    policies = sorted({policy for _, _, policy in by_key})
    for data, seed in sorted({key[:2] for key in by_key}):
        if all((data, seed, policy) in by_key for policy in policies):
            return [by_key[data, seed, policy] for policy in policies]
    raise UserError("no seed was run with every policy: run `python -m experiments run active` to its end")
