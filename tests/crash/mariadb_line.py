"""A connection to MariaDB that parses the protocol, and calls out before and after a commit.

PyMySQL sends a transaction's ``COMMIT`` as a query of its own, or in one query with everything else.
Source: MariaDB documentation, "Client/Server Protocol" (packets, COM_QUERY; unencrypted).
"""

from tests.crash.fatal_line import FatalLine
from tests.transport.proxy import Filter

_WRITES = (b"INSERT", b"UPDATE", b"DELETE", b"REPLACE")
_QUERY = b"\x03"
#: The first byte of an answer that reports an error.
_ERROR = b"\xff"
_HEADER = 4  # three bytes of length, one sequence number


class MariadbLine(FatalLine):
    def filters(self) -> tuple[Filter, Filter]:
        conversation = _Conversation(self)
        return conversation.to_server, conversation.from_server


class _Conversation:
    """One connection. A query may arrive in pieces; an incomplete one waits for the rest."""

    def __init__(self, line: MariadbLine) -> None:
        self._line = line
        self._asked = b""
        self._has_written = self._commits = self._is_dead = False

    def to_server(self, block: bytes) -> bytes:
        self._asked += block
        passed = b""
        while not self._is_dead and (packet := self._next_asked()):
            self._is_dead = self._is_fatal(packet[_HEADER:])
            if not self._is_dead:
                passed += packet
        return passed

    def _is_fatal(self, message: bytes) -> bool:
        if not message.startswith(_QUERY):
            return False
        text = message[1:].upper()
        self._has_written |= any(word in text for word in _WRITES)
        if b"ROLLBACK" in text:
            self._has_written = False
        self._commits = self._has_written and b"COMMIT" in text
        return self._commits and self._line.reached("commit")

    def from_server(self, block: bytes) -> bytes:
        if self._commits and not self._is_dead:
            self._commits = self._has_written = False
            self._is_dead = block[_HEADER : _HEADER + 1] != _ERROR and self._line.reached("committed")
        return b"" if self._is_dead else block

    def _next_asked(self) -> bytes:
        length = _HEADER + int.from_bytes(self._asked[:3], "little")
        if len(self._asked) < max(length, _HEADER):
            return b""
        packet, self._asked = self._asked[:length], self._asked[length:]
        return packet
