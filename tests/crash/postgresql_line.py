"""A connection to PostgreSQL that parses the protocol, and calls out at chosen points around a commit.

No driver is changed. It sees each ``COMMIT``, in a pipeline or alone, and each pipeline that writes without
``BEGIN``: this is one transaction that ends with the pipeline.
Source: PostgreSQL documentation, "Message Formats" (protocol 3.0, unencrypted).
"""

from tests.crash.fatal_line import FatalLine
from tests.transport.proxy import Filter

_WRITES = (b"INSERT", b"UPDATE", b"DELETE")


class PostgresqlLine(FatalLine):
    def filters(self) -> tuple[Filter, Filter]:
        conversation = _Conversation(self)
        return conversation.to_server, conversation.from_server


class _Conversation:
    """One connection. Messages may arrive in pieces; an incomplete one waits for the rest."""

    def __init__(self, line: PostgresqlLine) -> None:
        self._line = line
        self._asked, self._answered = b"", b""
        self._started = False
        self._statements = 0
        self._is_open = self._has_written = False
        self._is_dead = False
        #: Names of prepared statements that write.
        self._writing: set[bytes] = set()
        #: Whether the client has sent ``BEGIN`` and not yet ``COMMIT``.
        self._says_when = False
        #: Whether the client is in the implicit transaction of a pipeline.
        self._is_pipeline = False

    def to_server(self, block: bytes) -> bytes:
        self._asked += block
        passed = b""
        while not self._is_dead and (message := self._next_asked()):
            if self._started:
                self._is_dead = self._said(_text(message)) or self._is_fatal_in_pipeline(message)
            if not self._is_dead:
                passed += message
                self._started = True
        return passed

    def _said(self, text: bytes) -> bool:
        """Returns whether this message killed the process."""
        if text.startswith(b"BEGIN"):
            self._says_when = True
            return self._line.reached("begin")
        if text.startswith(b"COMMIT"):
            self._says_when = False
            return self._line.reached("commit")
        self._says_when &= not text.startswith(b"ROLLBACK")
        return False

    def _is_fatal_in_pipeline(self, message: bytes) -> bool:
        kind = message[:1]
        if kind == b"P" and any(word in _text(message) for word in _WRITES):
            self._writing.add(message[5:].partition(b"\0")[0])
        elif kind == b"B" and not self._says_when and not self._is_pipeline:
            _portal, _, rest = message[5:].partition(b"\0")
            if rest.partition(b"\0")[0] in self._writing:
                if self._line.reached("begin"):
                    return True
                self._is_open, self._has_written, self._statements = True, False, 0
                self._is_pipeline = True
        elif kind == b"S" and self._is_pipeline:
            return self._line.reached("commit")
        return False

    def from_server(self, block: bytes) -> bytes:
        self._answered += block
        passed = b""
        while not self._is_dead and (message := self._next_answered()):
            if message[:1] == b"C":
                self._is_dead = self._completed(message[5:-1])
            elif message[:1] == b"E":
                self._has_written = False
            elif message[:1] == b"Z" and self._is_pipeline:
                self._is_open = self._is_pipeline = False
                self._is_dead = self._has_written and self._line.reached("committed")
            if not self._is_dead:
                passed += message
        return passed

    def _completed(self, tag: bytes) -> bool:
        """Returns whether this answer killed the process."""
        if tag == b"BEGIN":
            self._is_open, self._has_written, self._statements = True, False, 0
        elif tag == b"COMMIT":
            self._is_open = False
            return self._has_written and self._line.reached("committed")
        elif tag == b"ROLLBACK":
            self._is_open = False
        elif self._is_open:
            self._has_written |= tag.startswith(_WRITES)
            if self._has_written:
                self._statements += 1
                return self._line.reached("statement", self._statements)
        return False

    def _next_asked(self) -> bytes:
        # The first message has no type: only a length.
        message, self._asked = _cut(self._asked, header=1 if self._started else 0)
        return message

    def _next_answered(self) -> bytes:
        message, self._answered = _cut(self._answered, header=1)
        return message


def _cut(received: bytes, header: int) -> tuple[bytes, bytes]:
    """(the first complete message or nothing, the rest)"""
    if len(received) < header + 4:
        return b"", received
    end = header + int.from_bytes(received[header : header + 4])
    return (received[:end], received[end:]) if len(received) >= end else (b"", received)


def _text(message: bytes) -> bytes:
    """SQL of a Query or Parse message."""
    if message[:1] == b"Q":
        return message[5:-1].lstrip().upper()
    if message[:1] == b"P":
        return message[5:].partition(b"\0")[2].lstrip().upper()
    return b""
