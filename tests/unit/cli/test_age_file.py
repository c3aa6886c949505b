"""Encrypted files in the format of age: reading a file of another implementation, and changed or cut files."""

import base64
import secrets

import pytest

from moorage.cli.backup.age_file import Passphrase
from moorage.core.errors import StartError

#: Written by rage (pyrage 1.4.0, passphrase.encrypt), which could also read our files of the sizes below.
THEIRS = base64.b64decode(
    "YWdlLWVuY3J5cHRpb24ub3JnL3YxCi0+IHNjcnlwdCB0dzZyVXpQWjdPaE9UbmhCeXJ6NEVRIDIwCjhRYm4vT2RIOUo0YjlMYS83aUtBS2psdGdC"
    "aWxhQzN1TUhNcXVIdlgyaDAKLS0tIEprNTFFK2ZtMTBwY1hsYW5VR01uV1BlR2FCR05IdXNoSXZQQ041eFBZNDQK3BogPLPaPsov2dmrBV4hYLnk"
    "PG9lAyjEys0KaRPTcD4uLAGuuBOjitw2NDW1cw=="
)
SIZES = (0, 1, 65535, 65536, 65537, 200_000)


@pytest.fixture
def passphrase():
    return Passphrase("correct horse", work=4)


def write_file(passphrase, path, content):
    with passphrase.write(path, secrets.token_bytes) as file:
        for start in range(0, len(content), 7000):
            file.write(content[start : start + 7000])
    return path


def test_a_file_that_rage_encrypted_is_decrypted(tmp_path):
    (tmp_path / "a").write_bytes(THEIRS)
    assert b"".join(Passphrase("correct horse").read(tmp_path / "a")) == b"hello from age"


@pytest.mark.parametrize("size", SIZES)
def test_a_written_file_reads_back_the_same_and_is_readable_only_by_its_owner(tmp_path, passphrase, size):
    content = secrets.token_bytes(size)
    path = write_file(passphrase, tmp_path / "a", content)
    assert b"".join(passphrase.read(path)) == content
    assert path.stat().st_mode & 0o777 == 0o600
    assert size < 8 or content not in path.read_bytes()


def test_another_passphrase_is_refused(tmp_path, passphrase):
    path = write_file(passphrase, tmp_path / "a", b"x")
    with pytest.raises(StartError, match="is wrong"):
        list(Passphrase("wrong horse").read(path))


def test_a_file_with_any_changed_byte_is_refused(tmp_path, passphrase):
    path = write_file(passphrase, tmp_path / "a", b"x" * 100)
    good = path.read_bytes()
    for place in range(len(good)):  # this includes the unused last bits of a base64 text
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(StartError):
            list(passphrase.read(path))


@pytest.mark.parametrize("kept", [0, 10, 160, 65536 + 16 + 200, -1])
def test_a_file_that_was_cut_is_refused(tmp_path, passphrase, kept):
    path = write_file(passphrase, tmp_path / "a", b"x" * 200_000)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(StartError):
        list(passphrase.read(path))


def test_a_file_that_was_cut_between_two_chunks_is_refused(tmp_path, passphrase):
    path = write_file(passphrase, tmp_path / "a", b"x" * 200_000)
    raw = path.read_bytes()
    header = len(raw) - 200_000 - 4 * 16
    path.write_bytes(raw[: header + 2 * (65536 + 16)])
    with pytest.raises(StartError, match="cut"):
        list(passphrase.read(path))


def test_a_file_with_a_higher_work_factor_than_ours_is_refused(tmp_path, passphrase):
    path = write_file(passphrase, tmp_path / "a", b"x")
    path.write_bytes(path.read_bytes().replace(b" 4\n", b" 40\n"))
    with pytest.raises(StartError, match="not a file that age encrypted"):
        list(passphrase.read(path))


def test_a_file_whose_writing_was_interrupted_is_refused(tmp_path, passphrase):
    with pytest.raises(KeyboardInterrupt), passphrase.write(tmp_path / "a", secrets.token_bytes) as file:
        file.write(b"x" * 200_000)
        raise KeyboardInterrupt
    with pytest.raises(StartError):
        list(passphrase.read(tmp_path / "a"))


def test_an_empty_passphrase_is_refused():
    with pytest.raises(StartError, match="empty"):
        Passphrase("")


def test_the_repr_of_a_passphrase_does_not_show_it(passphrase):
    assert "horse" not in repr(passphrase)
