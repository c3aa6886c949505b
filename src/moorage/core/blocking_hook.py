"""The hook that a thread calls before it blocks, so that another thread can take over its role.

The server lets only one thread at a time take up requests (`moorage.wire.server.threads`); its threads set a
callback. In threads without a callback, the hook does nothing.
"""

import threading
from collections.abc import Callable


class _Local(threading.local):
    on_wait: Callable[[], None] | None = None


_local = _Local()


def about_to_block() -> None:
    """Call this before the thread waits for a database or a client. Repeated calls are harmless."""
    if (on_wait := _local.on_wait) is not None:
        on_wait()


def set_callback(on_wait: Callable[[], None] | None) -> None:
    """Set this thread's callback; None removes it."""
    _local.on_wait = on_wait
