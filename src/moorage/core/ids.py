"""Sources of ids, which are passed as arguments so that a run can be repeated from its seed."""

import os
import random
import uuid
from typing import Protocol


class Ids(Protocol):
    def uuid(self) -> str:
        """A fresh version-4 UUID in canonical form."""
        ...

    def request_id(self) -> str:
        """``req-<uuid>``, the form that all OpenStack services log."""
        ...


class RandomIds:
    """Random ids: uuids from the operating system, request ids from the generator that each process seeds."""

    def uuid(self) -> str:
        return str(uuid.uuid4())

    def request_id(self) -> str:
        # Called once per request, and only names it in logs and answers. `os.urandom` is a system call, during which
        # another thread takes the interpreter's lock.
        digits = f"{_request_random.getrandbits(128) & _NOT_VERSION | _VERSION_4:032x}"
        return f"req-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


_request_random = random.Random()
os.register_at_fork(after_in_child=_request_random.seed)

#: Bits of the version (4) and the variant (binary 10) of a random UUID (RFC 9562).
_NOT_VERSION = ~(0xF000 << 64 | 0xC000 << 48)
_VERSION_4 = 0x4000 << 64 | 0x8000 << 48


class SeededIds:
    """Gives the same sequence for the same seed; for tests and replays only."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def request_id(self) -> str:
        return f"req-{self.uuid()}"


def is_uuid(text: str) -> bool:
    """True for the canonical, dashed, lower- or upper-case form only."""
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False
