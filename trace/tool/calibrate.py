"""A threshold for `gate` from past updates whose outcome is known, with a promise that holds for finitely many.

examples:

    calibrate --past past.csv --harm-above 0.02 --max-harmful-accepted 0.1 --out calibration.json
    calibrate --past past.jsonl --max-harmful-accepted 0.05 --guarantee joint

past.csv has the columns name, score and risk_change (signed, on the anchor: positive is harm); with several anchors
give the worst of each. The promise, for a new update that is exchangeable with the past ones:

    conditional   a harmful update is accepted with probability at most A (the default)
    joint         an update is harmful and accepted with probability at most A
    pac           with confidence 1 - DELTA over the past updates, at most a share A of harmful updates is accepted
"""

import argparse
from decimal import ROUND_FLOOR, Context
from pathlib import Path

from ..io.writing import check_outputs, strict_json, write_output
from ..scores import GATE_SCORES
from ..stats.conformal import GUARANTEES, calibrate_threshold
from .options import score_list
from .policy import StoredCalibration, calibration_record, read_past

SUMMARY = "find a threshold on past updates, so that harmful ones pass seldom"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: past updates and the promise."""
    parser.add_argument("--past", required=True, metavar="FILE", help="CSV or JSON lines: name, score, risk_change")
    parser.add_argument(
        "--harm-above",
        type=float,
        default=0.0,
        metavar="TAU",
        help="a rise of the risk beyond this is harm (default 0)",
    )
    parser.add_argument(
        "--max-harmful-accepted", type=float, default=0.1, metavar="A", help="the promised rate (default 0.1)"
    )
    parser.add_argument("--guarantee", choices=GUARANTEES, default="conditional", help="in which sense; see above")
    parser.add_argument("--delta", type=float, default=0.05, help="for pac (default 0.05)")
    parser.add_argument(
        "--score",
        choices=tuple(GATE_SCORES),
        default="",
        metavar="NAME",
        help="which score this is (see below), so that no policy uses it for another",
    )
    parser.add_argument("--out", metavar="FILE", help="JSON for a policy's `calibration:`; - is the standard output")
    parser.epilog = score_list()


def main(arguments: argparse.Namespace) -> int:
    """Find the threshold, write it, and say what it promises; the exit code is 0."""
    check_outputs({"--out": arguments.out}, [Path(arguments.past)])
    past = read_past(Path(arguments.past))
    found = calibrate_threshold(
        past,
        harm_above=arguments.harm_above,
        max_harmful_accepted=arguments.max_harmful_accepted,
        guarantee=arguments.guarantee,
        delta=arguments.delta,
    )
    if arguments.out:
        write_output(
            arguments.out, strict_json(calibration_record(StoredCalibration(found, arguments.score, tuple(past))))
        )
    if arguments.out != "-":
        write_output("-", f"threshold: {round_down(found.threshold)}\n{found.in_words()}")
    return 0


def round_down(value: float) -> str:
    """Six digits that never exceed the number: a threshold that is copied by hand must keep its promise.

    >>> round_down(0.3 - 1e-16), round_down(-0.12345678)
    ('0.299999', '-0.123457')
    """
    return str(Context(prec=6, rounding=ROUND_FLOOR).create_decimal_from_float(value))
