"""Decide about an update from as few labels as will do: which rows to label next, and whether those told decide.

examples:

    label --model old.skops --new-model new.skops --rows held.csv --threshold 0.02 --state labels.json
    (fill in the column `label` of labels.csv, ? where nobody can say, and run the same command again)
    label ... --interactive                      (shows row after row in a terminal and takes a key)
    label ... --simulate labelled.csv            (in place of --state: what these labels would have cost)
    gate ... --labels labels.json                (the labels as evidence for the gate)

Accepts where the risk on these rows rises by at most the threshold, and rejects where it rises by more, in either case
with the confidence, however often one looks. A label is asked for only where it can matter: for zero-one loss where
the two predictions differ. Rows come in a random order that is drawn once; the state keeps it with all labels, so that
the command goes on after any interruption, and refuses other models, rows or losses; another threshold or confidence
takes the same labels. By default the answer is about
these rows; with `--scope population` it is about what they were drawn from, which takes more labels.

The exit code is 0 (accept), 1 (reject), 2 (more labels are wanted), or 3 after an error.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor

from ..escaping import cell_text
from ..features import extract
from ..gate.labelling import Label, Labelling, Outcome, Scope
from ..io.data import read_rows
from ..io.errors import UserError
from ..io.images import plain_transform
from ..io.models import NamedModel, SavedOutputs
from ..io.opened import read_bytes
from ..io.rows import FileRows, targets
from ..io.sheets import UNKNOWN, read_sheet, sheet_text
from ..io.writing import check_outputs, write_atomically, write_output
from ..losses import ZeroOne
from .case import check_classes, load_models, probability_notes
from .keys import ask, check_terminal, choices
from .options import add_input_arguments, device_from, input_paths, seed, whole
from .record import model_digests
from .samples import Loader
from .state import SavedLabelling, loss_of, outputs_path, read_state, write_outputs, write_state

SUMMARY = "the next rows to label, and the decision as soon as labels allow it"
EXIT_CODES: dict[Outcome, int] = {"accept": 0, "reject": 1, "undecided": 2}
DEFAULTS: dict[str, Any] = {
    "threshold": 0.05,
    "confidence": 0.95,
    "scope": "file",
    "loss": "zero-one",
    "seed": 0,
    "id": None,
}
"""Of what a labelling is begun with; later calls may leave it out, or repeat it."""
_TAKEN = (
    *("--model", "--new-model", "--arch", "--trust", "--label", "--id", "--classes", "--image-size", "--pixels"),
    *("--device", "--batch-size"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: the question, where labels stand, and those of `diagnose` about models and files."""
    asked = parser.add_argument_group("label")
    asked.add_argument("--rows", metavar="DATA", required=True, help="anchor rows that no model was trained on")
    asked.add_argument("--state", metavar="FILE", help="JSON that keeps order and labels; it is begun if absent")
    asked.add_argument("--sheet", metavar="FILE", help="CSV to fill in (default: the state's name with .csv)")
    asked.add_argument("--ask", type=whole, default=20, metavar="N", help="rows on a sheet (default 20)")
    asked.add_argument("--interactive", action="store_true", help="show rows in this terminal and take keys")
    asked.add_argument("--simulate", metavar="DATA", help="labelled rows, those of --rows: what it would have cost")
    asked.add_argument("--threshold", type=float, metavar="T", help="tolerated rise of the mean loss (default 0.05)")
    asked.add_argument("--confidence", type=float, metavar="P", help="of the decision, at any time (default 0.95)")
    asked.add_argument("--scope", choices=get_args(Scope), help="what the answer is about (default: file)")
    asked.add_argument(
        "--loss", help="zero-one (default: the error rate), cross-entropy[:CLIP], or squared-error:LIMIT"
    )
    asked.add_argument("--seed", type=seed, help="of the order of the rows (default 0)")
    add_input_arguments(parser, required=False, only=_TAKEN)
    parser.set_defaults(limit=None, group=None)


def main(arguments: argparse.Namespace) -> int:
    """Go on with a labelling, or begin one; the exit code is the decision (`EXIT_CODES`)."""
    a = arguments
    read = [*input_paths(a), Path(a.rows), *([Path(a.simulate)] if a.simulate else [])]
    if a.simulate is not None:
        if a.state or a.sheet or a.interactive:
            raise UserError("--simulate asks nobody and keeps nothing: leave out --state, --sheet and --interactive")
        return _simulated(a)
    if a.state is None:
        raise UserError("--state is missing: name the file that keeps the labels, or give --simulate")
    state, sheet = Path(a.state), Path(a.sheet or Path(a.state).with_suffix(".csv"))
    check_outputs({"--state": a.state, "--sheet": str(sheet), "outputs": str(outputs_path(state))}, read)
    if a.interactive:
        check_terminal()
    saved, rows = _resumed(a, state) if state.exists() else _begun(a, state, sheet)
    ids = _ids(rows)
    if sheet.exists():
        saved.labelling.tell(*_told(sheet, ids, saved))
    saved = write_state(state, saved)
    if a.interactive:
        saved = _interview(state, saved, rows, ids)
    said = [saved.labelling.state.in_words()]
    wanted = saved.labelling.next_rows(a.ask).tolist()
    if wanted and not a.interactive:
        write_atomically(sheet, _sheet(wanted, saved, rows, ids))
        said.append(
            f"Next: label the {len(wanted)} rows of {sheet} (column label, {UNKNOWN} where nobody can say), and run "
            "the same command again."
        )
    elif wanted:
        said.append("Next: run the same command again, it goes on here.")
    write_output("-", "\n".join(said))
    return EXIT_CODES[saved.labelling.state.decision]


def _begun(a: argparse.Namespace, state: Path, sheet: Path) -> tuple[SavedLabelling, FileRows]:
    """A labelling whose order is drawn from outputs that are on the disk."""
    if sheet.exists():
        raise UserError(f"{sheet} is there before the labelling has begun: name another --sheet, or remove it")
    asked = {name: default if getattr(a, name) is None else getattr(a, name) for name, default in DEFAULTS.items()}
    loader, models, rows = _loaded(a, loss_of(asked["loss"]).classification)
    labelling = _labelling(a, asked, loader, models, rows)
    code = {
        name: spec
        for name, model in zip(("model", "new_model"), models, strict=True)
        if (spec := getattr(a, name)) and not model.sha256
    }
    files = {**model_digests(models), **loader.files}
    saved = SavedLabelling(labelling, asked, files, code, loader.classes, rows.columns)
    write_outputs(state, labelling)
    return saved, rows


def _loaded(a: argparse.Namespace, classification: bool) -> tuple[Loader, tuple[NamedModel, NamedModel], FileRows]:
    device = device_from(a.device)
    models = load_models(a, device)
    generator = torch.Generator().manual_seed(0)  # nothing is drawn: there is no limit
    loader = Loader(a, models, classification=classification, device=device, generator=generator)
    return loader, models, loader.file_rows(a.rows, "rows", labelled=False)


def _labelling(
    a: argparse.Namespace,
    asked: dict[str, Any],
    loader: Loader,
    models: tuple[NamedModel, NamedModel],
    rows: FileRows,
) -> Labelling:
    """The order of the rows, from the outputs of both models."""
    loss = loss_of(asked["loss"])
    outputs = [
        _outputs(model, key, rows, a.batch_size, loader.device)
        for model, key in zip(models, ("logits", "new_logits"), strict=True)
    ]
    widths = [z.shape[1] for z in outputs]
    if widths[0] != widths[1]:
        raise UserError(f"--model has {widths[0]} outputs, --new-model {widths[1]}: compare models of one task")
    check_classes(loss, loader.classes or (), widths[0])
    if not isinstance(loss, ZeroOne):
        for note in probability_notes(("--model", "--new-model"), outputs):
            print(note, file=sys.stderr)
    try:
        return Labelling(
            *outputs,
            limit=asked["threshold"],
            loss=loss,
            confidence=asked["confidence"],
            scope=asked["scope"],
            generator=torch.Generator().manual_seed(asked["seed"]),
        )
    except ValueError as error:
        raise UserError(f"{a.rows}: {error}") from error


def _outputs(model: NamedModel, key: str, rows: FileRows, batch_size: int, device: torch.device) -> Tensor:
    if isinstance(model, SavedOutputs):
        if key not in rows.saved:
            raise UserError(f"{rows.origin} holds no {key}, which no {model.name} needs: save it there, or give both")
        return rows.saved[key]
    return extract(model, rows.x.to(device), batch_size=batch_size, name=model.name).cpu()


def _resumed(a: argparse.Namespace, state: Path) -> tuple[SavedLabelling, FileRows]:
    """The labelling of a state file, and its rows; whatever is given again must be what it was begun with."""
    saved = read_state(state)
    for name in ("scope", "loss", "seed", "id"):
        if (given := getattr(a, name)) is not None and given != saved.asked.get(name):
            raise UserError(
                f"{state} was begun with --{name} {saved.asked.get(name)}, not {given}: leave it out, or begin anew "
                "with another --state"
            )
    given_classes = None if a.classes is None else tuple(name.strip() for name in a.classes.split(","))
    if given_classes is not None and given_classes != saved.classes:
        raise UserError(f"{state} was begun with other --classes: leave it out, or begin anew with another --state")
    for name in ("model", "new_model"):
        if (spec := getattr(a, name)) and not _is_same(spec, name, saved):
            raise UserError(f"{state} was begun with another {name} than {spec}: give that one, or begin anew")
    for name in ("threshold", "confidence"):  # labels and order serve any of them, each valid alone
        if (given := getattr(a, name)) is not None and given != saved.asked.get(name):
            asked = {**saved.asked, name: given}
            again = saved.labelling.judged(limit=asked["threshold"], confidence=asked["confidence"])
            saved = saved._replace(labelling=again, asked=asked)
    rows = read_rows(
        a.rows,
        transform=plain_transform(8, imagenet=False),  # names are all that is needed of images
        label=a.label,
        labelled=False,
        columns=saved.columns,
        limit=None,
        generator=torch.Generator().manual_seed(0),
        identity=saved.asked.get("id"),
    )
    if rows.sha256 != saved.files.get("rows"):
        raise UserError(f"{state} was begun with other rows than those of {a.rows}: give them as they were, or anew")
    return saved, rows


def _is_same(spec: str, name: str, saved: SavedLabelling) -> bool:
    file = Path(spec.partition("@")[2] if spec.startswith("timm:") else spec)
    if file.is_file():
        return read_bytes(file).sha256 == saved.files.get(name)
    return saved.code.get(name) == spec


def _ids(rows: FileRows) -> list[str]:
    """What each row is called: its id, or the name of its file, or its number."""
    ids = rows.names if rows.ids is None else [str(each) for each in rows.ids.tolist()]
    if len(set(ids)) < len(ids):
        twice = next(name for name, count in Counter(ids).items() if count > 1)
        raise UserError(f"{rows.origin} has more than one row {twice}: give every row an id of its own")
    return ids


def _told(sheet: Path, ids: Sequence[str], saved: SavedLabelling) -> tuple[list[int], list[Label]]:
    """Rows and labels of a sheet that was filled in."""
    index = {cell_text(name): row for row, name in enumerate(ids)}
    rows, labels = [], []
    for name, text in read_sheet(sheet).items():
        if name not in index:
            raise UserError(f"{sheet} labels {name}, which is no row of this labelling: give its own sheet")
        row, label = index[name], label_of(text, saved, f"{sheet}: {name}")
        if (before := saved.labelling.labels.get(row, label)) != label:
            raise UserError(
                f"{sheet}: {name} is labelled {text}, and was told to be {_label_text(before, saved)} before: a label "
                "stays as told"
            )
        rows.append(row)
        labels.append(label)
    return rows, labels


def label_of(text: str, saved: SavedLabelling, where: str) -> Label:
    """A class by its name or number, a target, or None where nobody can say.

    Raises:
        UserError: for what is none of them.
    """
    if text == UNKNOWN:
        return None
    if not saved.labelling.loss.classification:
        try:
            return float(text)
        except ValueError:
            raise UserError(f"{where} has the target {text!r}, which is no number: correct it") from None
    names = saved.classes or tuple(map(str, range(saved.labelling.outputs.shape[1])))
    cells = {cell_text(name): i for i, name in enumerate(names)} | {name: i for i, name in enumerate(names)}
    whole_number = text.removesuffix(".0")
    if (found := cells.get(text, cells.get(whole_number))) is not None:
        return found
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    raise UserError(f"{where} has the label {text!r}, none of the classes ({shown}): correct it, or write {UNKNOWN}")


def _label_text(label: Label, saved: SavedLabelling) -> str:
    """A label as a sheet has it."""
    if label is None:
        return UNKNOWN
    return saved.classes[int(label)] if saved.labelling.loss.classification and saved.classes else f"{label:g}"


def _predictions(row: int, saved: SavedLabelling) -> tuple[str, str]:
    """What each model says about a row."""
    labelling = saved.labelling

    def said(z: Tensor) -> str:
        if not labelling.loss.classification:
            return ", ".join(f"{value:.6g}" for value in z.tolist())
        return _label_text(int(z.argmax()), saved)

    return said(labelling.outputs[row]), said(labelling.candidates[0][row])


class Shown(NamedTuple):
    """The inputs of rows, as a person can look at them."""

    columns: tuple[str, ...]
    rows: FileRows

    @classmethod
    def of(cls, rows: FileRows) -> "Shown":
        """The columns of a table or a matrix, or where an image is."""
        if rows.columns is not None:
            return cls(rows.columns, rows)
        if rows.x.ndim == 4 and not rows.saved and Path(rows.origin).suffix not in (".npz", ".safetensors"):
            return cls(("path",), rows)
        width = rows.x.shape[1] if rows.has_inputs and rows.x.ndim == 2 else 0
        return cls(tuple(f"x{i}" for i in range(width)), rows)

    def values(self, row: int) -> list[str]:
        """Of one row, a text for every column."""
        if self.columns == ("path",):
            origin = Path(self.rows.origin)
            return [str((origin if origin.is_dir() else origin.parent) / self.rows.names[row])]
        digits = 15 if self.rows.x.dtype == torch.float64 else 7
        return [f"{value:.{digits}g}" for value in self.rows.x[row].tolist()] if self.columns else []


def _sheet(wanted: Sequence[int], saved: SavedLabelling, rows: FileRows, ids: Sequence[str]) -> str:
    shown = Shown.of(rows)
    return sheet_text(((ids[row], *_predictions(row, saved), *shown.values(row)) for row in wanted), shown.columns)


def _interview(state: Path, saved: SavedLabelling, rows: FileRows, ids: Sequence[str]) -> SavedLabelling:
    """Row after row until labels decide or the user stops; every label is on the disk before the next row is shown."""
    shown, classification = Shown.of(rows), saved.labelling.loss.classification
    while wanted := saved.labelling.next_rows(1).tolist():
        row = wanted[0]
        old, new = _predictions(row, saved)
        values = ", ".join(f"{name} {value}" for name, value in zip(shown.columns, shown.values(row), strict=True))
        lines = [f"{ids[row]}: the old model says {old}, the new one {new}", *([f"  {values}"] if values else [])]
        keys = choices(saved.classes or (), (old, new)) if classification else {}
        parse = partial(label_of, saved=saved, where=ids[row])
        text = ask(lines, keys, parse)
        if text is None:
            break
        saved.labelling.tell([row], [parse(text)])
        saved = write_state(state, saved)
    return saved


def _simulated(a: argparse.Namespace) -> int:
    """What the labels would have cost that are known here."""
    asked = {name: default if getattr(a, name) is None else getattr(a, name) for name, default in DEFAULTS.items()}
    loss = loss_of(asked["loss"])
    loader, models, rows = _loaded(a, loss.classification)
    labelling = _labelling(a, asked, loader, models, rows)
    known = rows if a.simulate == a.rows else loader.file_rows(a.simulate, "labels")
    if known.labels is None:
        raise UserError(f"{a.simulate} has no labels to simulate with: name their column with --label")
    y = targets(known, loader.classes, classification=loss.classification)
    if (names := _ids(known)) != (ids := _ids(rows)):
        if sorted(names) != sorted(ids):
            raise UserError(f"{a.simulate} and {a.rows} have other rows: give labels of the same ones")
        place = {name: i for i, name in enumerate(names)}
        y = y[[place[name] for name in ids]]
    while len(wanted := labelling.next_rows(1)):
        labelling.tell(wanted, y[wanted])
    state, course = labelling.state, labelling.courses[0]
    write_output(
        "-",
        f"{state.in_words()}\nIt would have cost {state.spent} of the {len(course.rows)} labels that could matter, on "
        f"{len(ids)} rows.",
    )
    return EXIT_CODES[state.decision]
