"""Split files: what is read, and the line that is wrong."""

import pytest

from trace.io.errors import MissingFileError, UserError
from trace.io.splits import SplitEntry, read_split, split_text


def written(tmp_path, text):
    path = tmp_path / "real_train.txt"
    path.write_bytes(text.encode())
    return path


def test_spaces_blank_lines_and_windows_line_ends(tmp_path):
    path = written(tmp_path, "\ufeffreal/a b/c d.jpg 3\r\n\r\n  real/x/y.jpg\t12 \n\n")
    assert read_split(path) == [SplitEntry("real/a b/c d.jpg", 3), SplitEntry("real/x/y.jpg", 12)]


def test_what_is_written_is_read(tmp_path):
    entries = [SplitEntry("real/a/1.png", 0), SplitEntry("real/b c/2.png", 10)]
    assert read_split(written(tmp_path, split_text(entries))) == entries


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("real/a/b.jpg", "'real/a/b.jpg' is no label"),
        ("real/a/b.jpg x", "'x' is no label"),
        ("real/a/b.jpg -1", "'-1' is no label"),
        ("real/a/b.jpg 1.0", "'1.0' is no label"),
        ("7", "no path before label 7"),
        ("/etc/passwd 0", "leaves the data folder"),
        ("real/../../x.jpg 0", "leaves the data folder"),
        ("real/a/first.jpg 5", "has label 0 above and 5 here"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    with pytest.raises(UserError, match=rf"real_train\.txt, line 3: .*{message}"):
        read_split(written(tmp_path, f"real/a/first.jpg 0\n\n{line}\n"))


def test_a_missing_or_binary_file_is_named(tmp_path):
    with pytest.raises(MissingFileError, match=r"sketch_train\.txt does not exist"):
        read_split(tmp_path / "sketch_train.txt")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not text in UTF-8"):
        read_split(tmp_path / "bad.txt")
