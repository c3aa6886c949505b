"""`moorage.durable`: files are replaced completely, and only their owner can access them."""

import pytest

from moorage.durable import DurableDocument, write_atomically, write_durably


@pytest.mark.parametrize("write", [write_durably, write_atomically])
def test_a_file_is_replaced_and_readable_only_by_its_owner(tmp_path, write):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o644)
    write(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_keeps_the_old_content(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(TypeError):
        write_durably(path, "no bytes")
    assert path.read_bytes() == b"old"
    write_durably(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_symbolic_link_in_place_of_the_temporary_file_is_not_followed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"of somebody else")
    (tmp_path / "file.new").symlink_to(elsewhere)
    write_durably(tmp_path / "file", b"ours")
    assert elsewhere.read_bytes() == b"of somebody else"
    assert (tmp_path / "file").read_bytes() == b"ours"
    assert not (tmp_path / "file").is_symlink()


def test_a_document_has_the_content_of_the_last_write_for_every_reader(tmp_path):
    path = tmp_path / "document"
    document = DurableDocument(path)
    assert document.read() is None
    for number in range(7):
        content = f'{{"number": {number}, "more": "{"x" * number * 3000}"}}  '.encode()
        document.write(content)
        assert document.read() == content
        again = DurableDocument(path)
        assert again.read() == content
        if number % 3 == 0:
            document.close()
            document = again
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_partly_written_document_is_read_with_its_previous_content(tmp_path):
    """After a power failure, the beginning or the end of a write may be missing."""
    path = tmp_path / "document"
    document = DurableDocument(path)
    for number in range(5):
        document.write(f"document {number}".encode())
        if number:
            before = path.read_bytes()
            document.write(b"the one that is cut short")
            after = path.read_bytes()
            changed = [at for at, (one, other) in enumerate(zip(before, after, strict=True)) if one != other]
            for cut in (changed[0] + 1, changed[len(changed) // 2], changed[-1]):
                for torn in (after[:cut] + before[cut:], before[:cut] + after[cut:]):
                    path.write_bytes(torn)
                    assert DurableDocument(path).read() == f"document {number}".encode()
            path.write_bytes(before)
            document = DurableDocument(path)
            document.read()


def test_a_document_is_written_in_place_until_it_needs_a_larger_file(tmp_path):
    path = tmp_path / "document"
    document = DurableDocument(path)
    document.write(b"small")
    inode, size = path.stat().st_ino, path.stat().st_size
    for number in range(20):
        document.write(b"small" * number)
    assert (path.stat().st_ino, path.stat().st_size) == (inode, size)
    document.write(b"large" * size)
    assert path.stat().st_ino != inode
    assert DurableDocument(path).read() == b"large" * size


def test_an_ordinary_file_is_read_completely_and_becomes_a_document_with_the_first_write(tmp_path):
    path = tmp_path / "document"
    path.write_bytes(b'{"version": 1}')
    document = DurableDocument(path)
    assert document.read() == b'{"version": 1}'
    document.write(b"ours")
    assert DurableDocument(path).read() == b"ours"
