"""The serial console of a simulated domain: a login prompt that echoes, and says that nothing runs behind it."""

import queue

#: What the keys send that end a line and erase a character.
_ENTER, _ERASE = b"\r\n", b"\x7f\x08"
#: Maximum length of a line, and number of pieces of output that wait for a reader.
_MAX_LINE, _MAX_PIECES = 256, 256


class SimulatedConsole:
    """See `GuestConsole`. Output that nobody reads is lost, as on a real serial port."""

    def __init__(self, name: str, host: str) -> None:
        self._name = name
        self._output: queue.Queue[bytes] = queue.Queue(_MAX_PIECES)
        self._line = bytearray()
        self._is_closed = False
        self._put(
            f"Simulated console of {name} on {host}.\r\n"
            "No guest runs on a simulated host: this console only repeats what you type.\r\n\r\n"
            f"{name} login: "
        )

    def read(self) -> bytes:
        return b"" if self._is_closed and self._output.empty() else self._output.get()

    def write(self, data: bytes) -> None:
        if self._is_closed:
            return
        for number in data:
            key = bytes([number])
            if key in (b"\r", b"\n"):
                self._answer()
            elif key in _ERASE:
                if self._line:
                    del self._line[-1]
                    self._put("\b \b")
            elif number >= 0x20 and len(self._line) < _MAX_LINE:
                self._line += key
                self._put(key)

    def close(self) -> None:
        self._is_closed = True
        self._put(b"")

    def _answer(self) -> None:
        typed = self._line.decode("utf-8", "replace")
        self._line.clear()
        said = f"simulated: you typed {typed!r}\r\n" if typed else ""
        self._put(f"\r\n{said}{self._name} login: ")

    def _put(self, piece: str | bytes) -> None:
        piece = piece.encode() if isinstance(piece, str) else piece
        while True:
            try:
                return self._output.put_nowait(piece)
            except queue.Full:
                self._output.get_nowait()
