"""DomainNet: downloads that break off, lie or cannot be written, and a check of the copy at hand."""

import io
import shutil
import zipfile

import pytest

from experiments.engine.errors import UserError
from experiments.engine.leases import acquire
from experiments.fetch.downloads import fetch
from experiments.vision.datasets import domainnet
from experiments.vision.datasets.domainnet import EXPECTED, PARTS, PublishedArchive, fetch_domains, verify
from experiments.vision.split_report import as_text
from tests.experiments.fetch.servers import serving
from tests.experiments.vision.trees import domainnet_tree
from trace.io.checksum import sha256

COUNTS = {("real", "train"): 12, ("real", "test"): 12}


def packed(tree, domain, extra=()):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as package:
        for path in sorted((tree / domain).rglob("*.jpg")):
            package.write(path, path.relative_to(tree))
        for name in extra:
            package.writestr(name, "evil")
    return buffer.getvalue()


@pytest.fixture
def tree(tmp_path):
    return domainnet_tree(tmp_path / "tree")


@pytest.fixture
def site(tree):
    files = {f"txt/{path.name}": path.read_bytes() for path in tree.glob("real_*.txt")}
    with serving({**files, "real.zip": packed(tree, "real")}) as site:
        yield site


@pytest.fixture
def get(site, tmp_path):
    """Download what the site publishes; ``part`` is what is known of its archive."""

    def get(part=None, root=tmp_path / "root", domains=("real",), expected=COUNTS):
        (tmp_path / "published.zip").write_bytes(site.files["real.zip"])
        digits = sha256(tmp_path / "published.zip")
        known = PublishedArchive(f"{site.url}real.zip", len(site.files["real.zip"]), digits[:8], digits[-6:])
        parts = {"real": part(known) if part else known}
        fetch_domains(root, domains, parts=parts, splits_url=f"{site.url}txt/", expected=expected, pause=0.0)
        return root

    return get


def test_the_table_holds_what_was_published():
    assert EXPECTED["painting", "train"] == 50_416
    assert sum(count for (_, split), count in EXPECTED.items() if split == "test") == 176_743
    assert "groundtruth/painting.zip" in PARTS["painting"].url
    assert all(len(part.begins) == 8 and len(part.ends) == 6 for part in PARTS.values())


def test_a_download_is_complete_and_a_second_one_asks_for_nothing(get, site, tree):
    root = get()
    assert {p.name for p in root.iterdir()} == {"real", "real.zip", "real_train.txt", "real_test.txt"}
    for path in (tree / "real").rglob("*.jpg"):
        assert (root / path.relative_to(tree)).read_bytes() == path.read_bytes()
    assert not any(report.problems for report in verify(root, expected=COUNTS, images=True))
    site.requests.clear()
    assert get() == root
    assert site.requests == []


def test_a_connection_that_breaks_off_goes_on_where_it_stopped(get, site):
    size = len(site.files["real.zip"])
    site.break_after = size // 3 + 1
    root = get()
    starts = [start for name, start in site.requests if name == "real.zip"]
    assert starts == [0, site.break_after, 2 * site.break_after]
    assert (root / "real.zip").stat().st_size == size


def test_an_interrupted_download_goes_on_in_the_next_call(get, site, tmp_path):
    size = len(site.files["real.zip"])
    root = tmp_path / "root"
    root.mkdir()
    (root / "real.zip.part").write_bytes(site.files["real.zip"][: size - 100])
    get()
    assert [start for name, start in site.requests if name == "real.zip"] == [size - 100]
    assert not (root / "real.zip.part").exists()


def test_a_server_without_ranges_starts_anew(get, site, tmp_path):
    site.ranges = False
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "real.zip.part").write_bytes(b"x" * 50)
    assert (get() / "real.zip").read_bytes() == site.files["real.zip"]


def test_a_split_file_that_was_whole_but_not_renamed_is_fetched_again(get, site, tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "real_train.txt.part").write_bytes(site.files["txt/real_train.txt"])
    assert (get() / "real_train.txt").read_bytes() == site.files["txt/real_train.txt"]


def test_a_server_that_never_sends_says_what_is_kept(get, site, tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "real.zip.part").write_bytes(site.files["real.zip"][:2000])
    get_splits = {name: body for name, body in site.files.items() if name.startswith("txt/")}
    for name, body in get_splits.items():
        (tmp_path / "root" / name.removeprefix("txt/")).write_bytes(body)
    site.status = 503
    with pytest.raises(UserError, match=r"real\.zip cannot be read .*503.* it goes on after the 2,000 bytes"):
        get()
    assert (tmp_path / "root" / "real.zip.part").stat().st_size == 2000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda part: part._replace(begins="00000000"), "has SHA-256 .* instead of 00000000"),
        (lambda part: part._replace(ends="000000"), "has SHA-256 .*000000: it is set aside"),
        (lambda part: part._replace(size=100), "instead of 100"),
    ],
)
def test_a_wrong_archive_is_set_aside_and_never_used(get, site, tmp_path, change, message):
    root = tmp_path / "root"
    with pytest.raises(UserError, match=message):
        get(change)
    assert {p.name for p in root.iterdir()} == {"real.zip.bad", "real_train.txt", "real_test.txt"}
    assert get() == root
    assert (root / "real").is_dir()


def test_an_archive_that_is_there_is_checked_before_use(get, site, tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "real.zip").write_bytes(b"left by someone")
    with pytest.raises(UserError, match=r"has 15 bytes instead of .*set aside"):
        get()
    assert not (tmp_path / "root" / "real.zip").exists()


def test_split_files_are_counted(get, site, tmp_path):
    with pytest.raises(UserError, match=r"real_train\.txt .* lists 12 images instead of 13"):
        get(expected={**COUNTS, ("real", "train"): 13})
    site.files["txt/real_train.txt"] = b"<html>moved</html>"
    with pytest.raises(UserError, match="is no split file"):
        get()
    assert not (tmp_path / "root" / "real_train.txt").exists()


@pytest.mark.parametrize("name", ["../evil.jpg", "/tmp/evil.jpg", "real/../../evil.jpg"])
def test_an_archive_that_leaves_its_folder_writes_nothing(get, site, tree, tmp_path, name):
    site.files["real.zip"] = packed(tree, "real", extra=[name])
    with pytest.raises(UserError, match="do not trust this archive"):
        get()
    assert not (tmp_path / "root" / "real").exists()
    assert not list(tmp_path.rglob("evil.jpg"))
    assert not list((tmp_path / "root").glob(".real.*"))


def test_an_unpacking_that_fails_leaves_nothing_behind(get, tmp_path, monkeypatch):
    def full(archive, folder):
        (folder / "real").mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(domainnet, "unpack", full)
    with pytest.raises(UserError, match=r"real\.zip cannot be unpacked .*No space left"):
        get()
    assert {p.name for p in (tmp_path / "root").iterdir()} == {"real.zip", "real_train.txt", "real_test.txt"}
    monkeypatch.undo()
    assert (get() / "real").is_dir()


def test_a_folder_that_cannot_be_written_is_named(get, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/real_train\.txt cannot be written .*--root"):
        get(root=tmp_path / "file")

    def refused(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("builtins.open", refused)
    with pytest.raises(UserError, match=r"cannot be written .*Permission denied"):
        fetch("http://127.0.0.1:9/x", tmp_path / "x", check=lambda _: None)


def test_a_half_full_folder_is_not_mixed_with_new_images(get, tmp_path):
    (tmp_path / "root" / "real").mkdir(parents=True)
    with pytest.raises(UserError, match=r"root/real exists and lacks images .*move it away"):
        get()


def test_what_is_unknown_is_said(get, site):
    with pytest.raises(UserError, match="no known archive of clipart"):
        get(domains=("clipart",))
    del site.files["txt/real_test.txt"]
    with pytest.raises(UserError, match=r"real_test\.txt answers 404"):
        get()


def test_two_downloads_of_one_file_do_not_mix(get, tmp_path):
    lease = acquire(tmp_path / "root" / "real_train.txt.part.lease")
    with lease, pytest.raises(UserError, match="being written by another process"):
        get()


def test_the_check_finds_what_is_wrong(tmp_path):
    root = domainnet_tree(tmp_path / "copy", absent=2, truncated=1)
    shutil.rmtree(root / "sketch" / "banana")
    expected = {("real", "train"): 12, ("real", "test"): 12, ("painting", "train"): 10, ("painting", "test"): 11}
    reports = {(r.domain, r.split): r for r in verify(root, images=True, expected=expected)}
    assert len(reports["real", "train"].missing) == 2
    assert len(reports["real", "test"].broken) == 1
    assert reports["painting", "train"].problems == []
    assert reports["painting", "train"].classes == 5
    assert reports["painting", "test"].problems == ["painting test lists 10 images, 11 are expected"]
    assert len(reports["sketch", "train"].missing) == 2
    text = as_text(list(reports.values()))
    assert "real test: 1 images are unreadable (real/aircraft_carrier/real_001_000003.jpg)" in text
    assert [r.domain for r in verify(root, domains=("sketch",), expected={})] == ["sketch", "sketch"]
    assert all(r.broken is None for r in verify(root, expected={}))
