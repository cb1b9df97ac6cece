"""Domains and classes on the source's principal axes, from records."""

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..engine.records import Record
from .style import COLOURS, COLUMN, MARKERS, axes, figure


@figure("embedding", "embedding")
def embedding(records: list[Record]) -> Figure:
    """Left: images, a colour a domain. Right: the mean of every class, with a line from the source's to the others'."""
    figure, grid = axes(2, len(records), width=2 * COLUMN, height=2.6, squeeze=False, sharex="row", sharey="row")
    for (images, means), record in zip(grid, records, strict=True):
        metrics, config = record["metrics"], record["config"]
        centres = {domain: _centres(points) for domain, points in metrics["points"].items()}
        origin = centres.get(config["source"], {})
        for domain, colour, marker in zip(config["domains"], COLOURS, MARKERS, strict=False):
            style = {"color": colour, "marker": marker, "linewidths": 0}
            points = metrics["points"][domain]
            images.scatter(points["first"], points["second"], s=6, alpha=0.6, label=domain, **style)
            for label, centre in centres[domain].items():
                means.scatter(*centre, s=14, **style)
                if label in origin and domain != config["source"]:
                    means.plot(*zip(origin[label], centre, strict=True), color=colour, linewidth=0.5, alpha=0.5)
        for ax, title in ((images, "images"), (means, "class means")):
            ax.set(title=f"{config['data']}, {title}", xlabel=_axis(metrics, 0), ylabel=_axis(metrics, 1))
        images.legend(markerscale=1.5)
    return figure


def _axis(metrics: Record, number: int) -> str:
    return f"axis {number + 1} ({100 * metrics['explained'][number]:.1f}% of the source's variance)"


def _centres(points: Record) -> dict[int, NDArray[np.float64]]:
    labels = np.array(points["labels"])
    both = np.array([points["first"], points["second"]])
    return {int(label): both[:, labels == label].mean(axis=1) for label in np.unique(labels)}
