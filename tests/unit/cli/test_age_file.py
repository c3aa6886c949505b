"""The format of age, checked with a file of another implementation, and with a change of every byte."""

import base64
import secrets

import pytest

from moorage.cli.backup.age_file import Passphrase
from moorage.core.errors import StartError

#: Of rage (pyrage 1.4.0, passphrase.encrypt), which read ours of these sizes, too.
THEIRS = base64.b64decode(
    "YWdlLWVuY3J5cHRpb24ub3JnL3YxCi0+IHNjcnlwdCB0dzZyVXpQWjdPaE9UbmhCeXJ6NEVRIDIwCjhRYm4vT2RIOUo0YjlMYS83aUtBS2psdGdC"
    "aWxhQzN1TUhNcXVIdlgyaDAKLS0tIEprNTFFK2ZtMTBwY1hsYW5VR01uV1BlR2FCR05IdXNoSXZQQ041eFBZNDQK3BogPLPaPsov2dmrBV4hYLnk"
    "PG9lAyjEys0KaRPTcD4uLAGuuBOjitw2NDW1cw=="
)
SIZES = (0, 1, 65535, 65536, 65537, 200_000)


@pytest.fixture
def passphrase():
    return Passphrase("correct horse", work=4)


def written(passphrase, path, content):
    with passphrase.write(path, secrets.token_bytes) as file:
        for start in range(0, len(content), 7000):
            file.write(content[start : start + 7000])
    return path


def test_what_age_encrypted_is_read(tmp_path):
    (tmp_path / "a").write_bytes(THEIRS)
    assert b"".join(Passphrase("correct horse").read(tmp_path / "a")) == b"hello from age"


@pytest.mark.parametrize("size", SIZES)
def test_what_is_written_is_read_and_for_us_alone(tmp_path, passphrase, size):
    content = secrets.token_bytes(size)
    path = written(passphrase, tmp_path / "a", content)
    assert b"".join(passphrase.read(path)) == content
    assert path.stat().st_mode & 0o777 == 0o600
    assert size < 8 or content not in path.read_bytes()


def test_another_passphrase_is_refused(tmp_path, passphrase):
    path = written(passphrase, tmp_path / "a", b"x")
    with pytest.raises(StartError, match="is wrong"):
        list(Passphrase("wrong horse").read(path))


def test_a_file_that_was_changed_anywhere_is_refused(tmp_path, passphrase):
    path = written(passphrase, tmp_path / "a", b"x" * 100)
    good = path.read_bytes()
    for place in range(len(good)):  # the last bits of a base64 text carry nothing, and are changed here too
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(StartError):
            list(passphrase.read(path))


@pytest.mark.parametrize("kept", [0, 10, 160, 65536 + 16 + 200, -1])
def test_a_file_that_was_cut_is_refused(tmp_path, passphrase, kept):
    path = written(passphrase, tmp_path / "a", b"x" * 200_000)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(StartError):
        list(passphrase.read(path))


def test_a_file_that_was_cut_between_two_parts_is_refused(tmp_path, passphrase):
    path = written(passphrase, tmp_path / "a", b"x" * 200_000)
    raw = path.read_bytes()
    header = len(raw) - 200_000 - 4 * 16
    path.write_bytes(raw[: header + 2 * (65536 + 16)])
    with pytest.raises(StartError, match="cut"):
        list(passphrase.read(path))


def test_a_file_asks_for_no_more_work_than_we_do(tmp_path, passphrase):
    path = written(passphrase, tmp_path / "a", b"x")
    path.write_bytes(path.read_bytes().replace(b" 4\n", b" 40\n"))
    with pytest.raises(StartError, match="not a file that age encrypted"):
        list(passphrase.read(path))


def test_what_was_left_with_an_exception_is_not_whole(tmp_path, passphrase):
    with pytest.raises(KeyboardInterrupt), passphrase.write(tmp_path / "a", secrets.token_bytes) as file:
        file.write(b"x" * 200_000)
        raise KeyboardInterrupt
    with pytest.raises(StartError):
        list(passphrase.read(tmp_path / "a"))


def test_an_empty_passphrase_is_none():
    with pytest.raises(StartError, match="empty"):
        Passphrase("")


def test_a_passphrase_does_not_show(passphrase):
    assert "horse" not in repr(passphrase)
