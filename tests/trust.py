"""All attacks and faults with counts: `make trust`, at most 15 minutes.

Hostile files meet the command line (`tests.trace.attacks`), runs and records are spoiled and killed
(`tests.experiments.faults`), damaged files meet every reader (`tests.fuzzing`), and tasks, nodes, disks and leases fail
in the tests that are named here. The counts are one record, `trust`, of which `python -m experiments tables` makes the
table; the exit code is 1 where anything did not hold.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import torch

from experiments.engine.manifests import write_record
from experiments.engine.records import RECORDS, ROOT, provenance, run_id
from experiments.tables.table import to_text
from experiments.tables.trust import trust
from tests.experiments import faults
from tests.trace import attacks

Row = dict[str, Any]

KINDS = {
    "code": "hostile files: programs",
    "verdict": "hostile files: wrong verdicts",
    "text": "hostile files: text, outputs over inputs",
    "resources": "hostile files: appetite",
}
ENGINE = "tests/experiments/engine"
TESTED = {
    "tasks that die on a SLURM cluster": [f"{ENGINE}/launchers/test_slurm_deaths.py"],
    "two SLURM nodes: daemons killed, drained, races": [f"{ENGINE}/launchers/test_slurm_nodes.py"],
    "SLURM: warnings, Ctrl-C, full disks, two launchers": [f"{ENGINE}/launchers/test_slurm_trouble.py"],
    "leases on shared file systems": [f"{ENGINE}/test_leases.py", f"{ENGINE}/test_shared.py"],
    "signals to launchers, workers and stages": [
        f"{ENGINE}/launchers/test_local.py",
        f"{ENGINE}/test_interrupt.py",
        "tests/experiments/commands/test_reproduce.py",
    ],
    "manifests of incomplete and changed records": [f"{ENGINE}/test_manifests.py"],
}
FUZZED = ["tests/trace/tool/test_fuzz.py", f"{ENGINE}/test_fuzz.py"]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fuzz", type=int, default=1, metavar="N", help="times the files of `make test` (%(default)s)")
    parser.add_argument("--records", type=Path, default=RECORDS, help="where to store (default: results/records)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        tests = _start_tests(Path(folder))
        for part in (attacked(), faulted(), fuzzed(options.fuzz, Path(folder)), tested(tests, Path(folder))):
            for row in part:
                print(f"{row['held']:>7} of {row['tried']:>7} held: {row['what']}", file=sys.stderr, flush=True)
                rows.append(row)
    config = {"seed": 0, "fuzz": options.fuzz}
    record = {
        "run_id": run_id("trust", {"profile": "cpu", **config}),
        "experiment": "trust",
        "profile": "cpu",
        "config": config,
        "seed": 0,
        "metrics": {"rows": rows},
        **provenance(),
    }
    write_record(record, options.records / "trust.jsonl")
    print(to_text(trust([record])))
    return 0 if all(row["held"] == row["tried"] for row in rows) else 1


def attacked() -> Iterator[Row]:
    import trace.report.page
    import trace.tool.cli
    import trace.tool.gate  # noqa: F401  so that no attack pays for the imports

    for kind, what in KINDS.items():
        found, seconds = _timed(
            lambda kind=kind: [attacks.outcome(a) for a in attacks.ATTACKS.values() if a.kind == kind]
        )
        for each in found:
            if not each.held:
                print(f"LOST {each.name}: {each.why}", file=sys.stderr)
        yield {
            "what": what,
            "tried": len(found),
            "held": sum(each.held for each in found),
            "code": sum(each.code for each in found),
            "accepts": sum(each.accepted for each in found),
            "tracebacks": sum(each.traceback for each in found),
            "seconds": seconds,
        }


def faulted() -> Iterator[Row]:
    for what in faults.FAULTS:
        tally, seconds = _timed(lambda what=what: faults.tallied(what))
        yield {"what": what, **tally._asdict(), "seconds": seconds}


def fuzzed(times: int, folder: Path) -> Iterator[Row]:
    """Every reader, with new files each time; hypothesis shrinks what fails to the least of its kind."""
    environment = {**os.environ, "TRACE_FUZZ": str(times), "TRACE_FUZZ_TALLY": str(folder / "tally")}
    _, seconds = _timed(
        lambda: subprocess.run(
            [*_pytest(folder / "fuzz.xml"), *FUZZED], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL
        )
    )
    failed = _failed(_cases(folder / "fuzz.xml"))
    tried = int((folder / "tally").read_text())
    yield {
        "what": "damaged and random files for every reader",
        "tried": tried,
        "held": tried - len(failed),
        "tracebacks": len(failed),
        "seconds": seconds,
    }


def _start_tests(folder: Path) -> "subprocess.Popen[bytes]":
    """They mostly wait, for clusters and timeouts, while the rest computes."""
    files = [file for group in TESTED.values() for file in group]
    command = [*_pytest(folder / "tests.xml"), "-n", "2", "--dist", "loadgroup", *files]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)


def tested(process: "subprocess.Popen[bytes]", folder: Path) -> Iterator[Row]:
    """One test is one fault; those that a machine without SLURM skips are not counted."""
    process.wait()
    cases = _cases(folder / "tests.xml")
    for what, files in TESTED.items():
        modules = tuple(file.removesuffix(".py").replace("/", ".") for file in files)
        own = [case for case in cases if case.get("classname", "").startswith(modules) and case.find("skipped") is None]
        failed = _failed(own)
        seconds = sum(float(case.get("time", 0)) for case in own)
        yield {"what": what, "tried": len(own), "held": len(own) - len(failed), "seconds": seconds}


def _failed(cases: list[ElementTree.Element]) -> list[ElementTree.Element]:
    """Those that failed, each named with the end of what it said."""
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    for case in failed:
        print(f"LOST {case.get('classname')}::{case.get('name')}", file=sys.stderr)
        print((case.findtext("failure") or case.findtext("error") or "")[-2000:], file=sys.stderr)
    return failed


def _pytest(report: Path) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]


def _cases(report: Path) -> list[ElementTree.Element]:
    return list(ElementTree.parse(report).iter("testcase"))


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    return call(), time.perf_counter() - start


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))
