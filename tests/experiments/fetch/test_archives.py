"""Unpacking: files land in their folder, and an archive that means harm writes nothing."""

import io
import random
import stat
import tarfile
import zipfile

import pytest

from experiments.engine.errors import UserError
from experiments.fetch import archives
from experiments.fetch.archives import unpack


def zipped(path, entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in entries.items():
            package.writestr(name, content)
    return path


def taped(path, entries, **extra):
    with tarfile.open(path, "w:gz") as bundle:
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in extra.items():
                setattr(info, key, value)
            bundle.addfile(info, io.BytesIO(content))
    return path


def files_below(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def target(tmp_path):
    (tmp_path / "inner" / "target").mkdir(parents=True)
    return tmp_path / "inner" / "target"


@pytest.mark.parametrize(("pack", "suffix"), [(zipped, "zip"), (taped, "tgz")])
def test_files_land_in_their_folders(tmp_path, target, pack, suffix):
    entries = {"real/a b/1.jpg": b"one", "real/c/2.jpg": b""}
    unpack(pack(tmp_path / f"good.{suffix}", entries), target)
    assert files_below(target) == entries


@pytest.mark.parametrize(("pack", "suffix"), [(zipped, "zip"), (taped, "tgz")])
@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/tmp/evil", "C:/evil", "a\\..\\evil", "."])
def test_an_entry_that_leaves_the_folder_is_refused_before_anything_is_written(tmp_path, target, pack, suffix, name):
    archive = pack(tmp_path / f"bad.{suffix}", {"good": b"x", name: b"evil"})
    with pytest.raises(UserError, match="do not trust this archive"):
        unpack(archive, target)
    assert set(files_below(tmp_path)) == {f"bad.{suffix}"}


def test_links_are_refused(tmp_path, target):
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as package:
        package.writestr(info, "/etc/passwd")
    tape = taped(tmp_path / "link.tgz", {"link": b""}, type=tarfile.SYMTYPE, linkname="/etc/passwd")
    for archive in (tmp_path / "link.zip", tape):
        with pytest.raises(UserError, match="'link' is a link or a device"):
            unpack(archive, target)
    assert not any(target.iterdir())


@pytest.mark.parametrize(("pack", "suffix"), [(zipped, "zip"), (taped, "tgz")])
def test_a_bomb_is_refused_by_its_declared_size(tmp_path, target, pack, suffix):
    archive = pack(tmp_path / f"bomb.{suffix}", {"zeros": bytes(12_000_000)})
    with pytest.raises(UserError, match="would unpack to 12,000,000 bytes"):
        unpack(archive, target)
    assert not any(target.iterdir())


def test_too_little_space_is_said_before_anything_is_written(tmp_path, target, monkeypatch):
    monkeypatch.setattr(archives.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 3}))
    with pytest.raises(UserError, match=r"unpacks to 4 bytes and .* has 3 left"):
        unpack(zipped(tmp_path / "good.zip", {"a": b"four"}), target)
    assert not any(target.iterdir())


@pytest.mark.parametrize("suffix", ["zip", "tgz"])
def test_a_damaged_archive_is_named(tmp_path, target, suffix):
    (tmp_path / f"cut.{suffix}").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(UserError, match=rf"cut\.{suffix} is damaged"):
        unpack(tmp_path / f"cut.{suffix}", target)


@pytest.mark.parametrize(("pack", "suffix"), [(zipped, "zip"), (taped, "tgz")])
def test_damage_inside_an_archive_is_named(tmp_path, target, pack, suffix):
    archive = pack(tmp_path / f"cut.{suffix}", {"noise": random.Random(0).randbytes(10_000)})
    whole = archive.read_bytes()
    archive.write_bytes(whole[:5000] + b"damaged" + whole[5007:] if suffix == "zip" else whole[:5000])
    with pytest.raises(UserError, match=rf"cut\.{suffix} is damaged"):
        unpack(archive, target)


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_devices_and_links_inside_the_folder_are_refused(tmp_path, target, kind):
    archive = taped(tmp_path / "odd.tgz", {"good": b"", "odd": b""}, type=kind, linkname="good")
    with pytest.raises(UserError, match="'good' is a link or a device"):
        unpack(archive, target)
    assert not any(target.iterdir())
