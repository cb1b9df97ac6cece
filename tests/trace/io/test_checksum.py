"""The checksum of a file against the known one of three letters (FIPS 180-2)."""

from trace.io.checksum import sha256


def test_the_checksum_is_the_known_one(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
