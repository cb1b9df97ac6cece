"""The command line: help that lists, typos that are answered, tables without torch."""

import subprocess
import sys

import pytest

from experiments.__main__ import COMMANDS, main
from experiments.records import ROOT


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_every_command(arguments, capsys):
    main(arguments)
    page = capsys.readouterr().out
    assert all(name in page for name in COMMANDS)


def test_a_typo_is_answered():
    with pytest.raises(SystemExit, match="unknown command 'tabels', did you mean tables"):
        main(["tabels"])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, capsys):
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    assert "default" in capsys.readouterr().out


def test_tables_need_no_training_code():
    code = "import sys, experiments.tables; print(sorted({'torch', 'trace', 'sklearn'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
