"""Reads and writes files encrypted with a passphrase in the format of age; `age --decrypt` can read them, too.

Files are streamed, 64 KiB at a time. scrypt derives the key from the passphrase (2^18 rounds, 256 MiB, about a second).
Each part is sealed with ChaCha20-Poly1305, and the last part is marked as last, so a file that was truncated or changed
anywhere is rejected.

Not here: which files are encrypted; age recipients other than a passphrase. Spec: age-encryption.org/v1.
"""

import base64
import hmac
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from moorage.core.errors import StartError

SUFFIX = ".age"

_INTRO = b"age-encryption.org/v1"
_LABEL = b"age-encryption.org/v1/scrypt"
_PART_BYTES = 64 << 10
_TAG = 16
#: scrypt cost as a power of two: the value that age writes, and the maximum that we accept in a file.
_WORK, _MAX_WORK = 18, 22

#: Returns the given number of random bytes.
RandomBytes = Callable[[int], bytes]


class Passphrase:
    """Keeps the passphrase to process several files. Raises `StartError` without the library ``cryptography``."""

    def __init__(self, text: str, *, work: int = _WORK) -> None:
        if not text:
            raise StartError("the passphrase is empty; enter one and keep it: without it the backup cannot be read")
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
        except ImportError as error:
            raise StartError(
                "encrypted backups need the library cryptography; install it: pip install 'moorage[signatures]'"
            ) from error
        self._seal: Callable[[bytes], Any] = ChaCha20Poly1305
        self._wrong_key_or_content: type[Exception] = InvalidTag
        self._text = text.encode()
        self._work = work

    def __repr__(self) -> str:
        return "Passphrase()"

    def write(self, path: Path, random_bytes: RandomBytes) -> "AgeWriter":
        """Creates a file for this user only. It is complete once the writer exits without an exception."""
        file_key, salt, nonce = random_bytes(16), random_bytes(16), random_bytes(16)
        wrapped = self._seal(self._wrapping_key(salt, self._work)).encrypt(bytes(12), file_key, None)
        lines = (_INTRO, b"-> scrypt %s %d" % (_to_base64(salt), self._work), _to_base64(wrapped), b"---")
        header = b"\n".join(lines)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        file = os.fdopen(descriptor, "wb")
        file.write(header + b" " + _to_base64(_mac(file_key, header)) + b"\n" + nonce)
        return AgeWriter(file, self._seal(_derived(file_key, nonce, b"payload")))

    def read(self, path: Path) -> Iterator[bytes]:
        """Yields the authenticated content in parts. Raises `StartError` for a wrong passphrase, another format or a
        changed file; after an error, discard the parts yielded before.
        """
        with path.open("rb") as file:
            aead = self._seal(self._payload_key(file, path))
            number, part = 0, file.read(_PART_BYTES + _TAG)
            while True:
                following = file.read(_PART_BYTES + _TAG)
                try:
                    content = aead.decrypt(_nonce(number, is_last=not following), part, None)
                except self._wrong_key_or_content as error:
                    raise StartError(f"{path} was changed or cut: it cannot be decrypted at part {number}") from error
                yield content
                if not following:
                    return
                number, part = number + 1, following

    def _payload_key(self, file: IO[bytes], path: Path) -> bytes:
        no_file = f"{path} is not a file that age encrypted with a passphrase"
        rows = [file.readline(256).rstrip(b"\n") for _ in range(4)]
        intro, stanza, body, end = rows
        words, (dashes, _, mac) = stanza.split(b" "), end.partition(b" ")
        if intro != _INTRO or len(words) != 4 or words[:2] != [b"->", b"scrypt"] or dashes != b"---":
            raise StartError(no_file)
        salt, wrapped, given = _from_base64(words[2]), _from_base64(body), _from_base64(mac)
        if len(salt) != 16 or len(wrapped) != 32 or not words[3].isdigit() or not 1 <= int(words[3]) <= _MAX_WORK:
            raise StartError(no_file)
        try:
            file_key = self._seal(self._wrapping_key(salt, int(words[3]))).decrypt(bytes(12), wrapped, None)
        except self._wrong_key_or_content as error:
            raise StartError(f"the passphrase of {path} is wrong") from error
        if not hmac.compare_digest(given, _mac(file_key, b"\n".join((intro, stanza, body, b"---")))):
            raise StartError(f"{path} was changed: its header does not match")
        nonce = file.read(16)
        return _derived(file_key, nonce, b"payload")

    def _wrapping_key(self, salt: bytes, work: int) -> bytes:
        from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

        return Scrypt(salt=_LABEL + salt, length=32, n=1 << work, r=8, p=1).derive(self._text)


class AgeWriter(AbstractContextManager["AgeWriter"]):
    """Encrypts everything written to it. A normal exit completes the file and syncs it to disk."""

    def __init__(self, file: IO[bytes], aead: Any) -> None:
        self._file = file
        self._aead = aead
        self._rest = bytearray()
        self._number = 0

    def write(self, content: bytes) -> int:
        self._rest += content
        while len(self._rest) > _PART_BYTES:  # the last part is never empty, unless the file is
            self._put(bytes(self._rest[:_PART_BYTES]), is_last=False)
            del self._rest[:_PART_BYTES]
        return len(content)

    def _put(self, part: bytes, *, is_last: bool) -> None:
        self._file.write(self._aead.encrypt(_nonce(self._number, is_last=is_last), part, None))
        self._number += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if kind is None:
                self._put(bytes(self._rest), is_last=True)
                self._file.flush()
                os.fsync(self._file.fileno())


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + (b"\1" if is_last else b"\0")


def _derived(file_key: bytes, salt: bytes, what: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=SHA256(), length=32, salt=salt, info=what).derive(file_key)


def _mac(file_key: bytes, header: bytes) -> bytes:
    return hmac.digest(_derived(file_key, b"", b"header"), header, "sha256")


def _to_base64(raw: bytes) -> bytes:
    return base64.b64encode(raw).rstrip(b"=")


def _from_base64(text: bytes) -> bytes:
    """The decoded bytes; empty for invalid base64, and for a text that is not the one that encodes these bytes."""
    try:
        raw = base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except ValueError:
        return b""
    return raw if _to_base64(raw) == text else b""
