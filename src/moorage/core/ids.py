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
    """Random ids from the operating system."""

    def uuid(self) -> str:
        return str(uuid.uuid4())

    def request_id(self) -> str:
        # Takes a third of the time of uuid.UUID; called once per request.
        digits = f"{int.from_bytes(os.urandom(16)) & _NOT_VERSION | _VERSION_4:032x}"
        return f"req-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


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
