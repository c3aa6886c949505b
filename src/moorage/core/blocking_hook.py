"""A thread that is going to wait for somebody else says so, and whoever depends on it can let another one take over.

The server lets one thread at a time take requests up (`moorage.wire.server.leader_followers`); in threads of other kinds nothing happens.
"""

import threading
from collections.abc import Callable


class _Local(threading.local):
    on_wait: Callable[[], None] | None = None


_local = _Local()


def about_to_block() -> None:
    """To be called before this thread waits for a database, another thread or a network: once or often."""
    if (on_wait := _local.on_wait) is not None:
        on_wait()


def set_callback(on_wait: Callable[[], None] | None) -> None:
    """Of this thread, from now on; None: nobody wants to know."""
    _local.on_wait = on_wait
