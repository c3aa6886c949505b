"""The adjustable clock of a rehearsal, its offset kept over restarts in ``clock`` in the state directory."""

from datetime import timedelta
from pathlib import Path

from moorage.core.clock import AdjustableClock
from moorage.core.errors import StartError
from moorage.durable import write_durably


def open_clock(state: Path) -> AdjustableClock:
    """Where it stood, or at the machine's time at the first start. Raises `StartError` for a file that is no offset."""
    path = state / "clock"
    try:
        clock = AdjustableClock(timedelta(seconds=float(path.read_text(encoding="ascii"))))
        clock.now()  # within the calendar
    except FileNotFoundError:
        clock = AdjustableClock()
    except (OSError, ValueError, OverflowError) as error:
        raise StartError(
            f"{path} must hold the seconds that the clock is ahead: {error}; remove it to go back to the machine's time"
        ) from error
    clock.on_advance.append(lambda: write_durably(path, f"{clock.offset.total_seconds()}\n".encode("ascii")))
    return clock
