"""The command line: help that lists, typos that are answered, tables without training code."""

import subprocess
import sys

import pytest

from experiments.__main__ import COMMANDS, main
from experiments.commands import collect
from experiments.engine.records import ROOT
from experiments.engine.registry import summaries


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_every_command(arguments, capsys):
    main(arguments)
    page = capsys.readouterr().out
    assert all(name in page for name in summaries(COMMANDS))


def test_a_typo_is_answered():
    with pytest.raises(SystemExit, match="unknown command 'tabels', did you mean tables"):
        main(["tabels"])


@pytest.mark.parametrize("name", summaries(COMMANDS))
def test_every_command_has_help(name, capsys):
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    assert "default" in capsys.readouterr().out


@pytest.mark.parametrize("module", ["tables", "figures"])
def test_what_is_made_from_records_needs_no_training_code(module, tmp_path):
    training = {
        "trace.training",
        "trace.training.stack",
        "experiments.pairs.train",
        "experiments.synthetic",
        "wandb",
    }
    code = f"import sys; from experiments.__main__ import main; main({[module, '--output', str(tmp_path)]!r})\n"
    code += f"print(sorted({training!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_options_and_keys_may_come_in_any_order(capsys):
    main(["run", "tests.experiments.toy", "--dry-run", "seed=3,4"])
    assert " seed=4\n" in capsys.readouterr().out


def test_a_mistake_is_one_sentence_and_a_bug_keeps_its_traceback(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="unknown experiment 'nothing'"):
        main(["status", "nothing"])
    with pytest.raises(SystemExit, match="run the experiment that writes it first"):
        main(["tables", "--records", str(tmp_path)])
    for bug in (ValueError("too many values to unpack"), KeyError("seed"), TypeError("no")):

        def broken(*_, bug=bug, **__):
            raise bug

        monkeypatch.setattr(collect, "collect", broken)
        with pytest.raises(type(bug)):
            main(["collect", "--runs", str(tmp_path)])
