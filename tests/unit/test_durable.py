"""A file is replaced whole, for us alone."""

import pytest

from moorage.durable import write_durably


def test_the_new_content_is_there_and_nobody_else_can_read_it(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o644)
    write_durably(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_the_old_content(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(TypeError):
        write_durably(path, "no bytes")
    assert path.read_bytes() == b"old"
    write_durably(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_draft_that_a_crash_left_is_not_followed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"of somebody else")
    (tmp_path / "file.new").symlink_to(elsewhere)
    write_durably(tmp_path / "file", b"ours")
    assert elsewhere.read_bytes() == b"of somebody else"
    assert (tmp_path / "file").read_bytes() == b"ours"
    assert not (tmp_path / "file").is_symlink()
