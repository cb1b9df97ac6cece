"""The environment of peers: made once from hashes, found again by its list, whole or not at all."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import peers
from experiments.engine.errors import UserError
from experiments.peers import LOCK, ask, environment, name_of
from tests.test_project import tiny_wheel


@pytest.fixture
def lock(tmp_path, monkeypatch):
    """Of one package, which only this folder has."""
    for name in ("PIP", "UV"):
        monkeypatch.setenv(f"{name}_NO_INDEX", "1")
        monkeypatch.setenv(f"{name}_FIND_LINKS", str(tmp_path))
    path = tmp_path / "tiny.lock"
    path.write_text(tiny_wheel(tmp_path, "petal"))
    return path


def imports(python, name):
    return subprocess.run([python, "-I", "-c", f"import {name}"], capture_output=True, check=False).returncode == 0


def test_it_is_made_once_and_sees_its_own_packages_alone(lock, tmp_path, monkeypatch):
    python = environment(lock, tmp_path / "kept")
    assert imports(python, "petal")
    assert not imports(python, "numpy")
    monkeypatch.setattr(peers, "_installed", None)
    assert environment(lock, tmp_path / "kept") == python


def test_another_list_is_another_environment(lock, tmp_path):
    first = environment(lock, tmp_path / "kept")
    lock.write_text(lock.read_text() + tiny_wheel(tmp_path, "sepal"))
    second = environment(lock, tmp_path / "kept")
    assert imports(second, "sepal")
    assert not imports(first, "sepal")


def test_pip_installs_where_uv_is_missing(lock, tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "_ways", lambda *told, ways=peers._ways: {"pip": ways(*told)["pip"]})
    assert imports(environment(lock, tmp_path / "kept"), "petal")


def test_a_wrong_hash_leaves_nothing_behind(lock, tmp_path):
    lock.write_text(lock.read_text()[:-9] + "deadbeef\n")
    with pytest.raises(UserError, match=r"tiny\.lock cannot be installed \(.*\): check your network"):
        environment(lock, tmp_path / "kept")
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_peer_that_fails_says_why():
    with pytest.raises(UserError, match="the peer ppi failed: TypeError"):
        ask("ppi", {"y": [[0.0]]}, python=Path(sys.executable))


def test_the_lock_is_that_of_the_list_and_names_no_address():
    pins = re.findall(r"^[\w-]+==\S+", LOCK.with_suffix(".txt").read_text(), re.MULTILINE)
    entries = re.findall(r"^(\S+==\S+).*\\\n    --hash=sha256:[0-9a-f]{64}", LOCK.read_text(), re.MULTILINE)
    assert pins
    assert set(pins) <= set(entries)
    assert len(entries) == len(re.findall(r"^[^\s#]", LOCK.read_text(), re.MULTILINE))
    assert "://" not in LOCK.read_text()
    assert name_of(LOCK).endswith(f"-{sys.version_info[0]}.{sys.version_info[1]}")
