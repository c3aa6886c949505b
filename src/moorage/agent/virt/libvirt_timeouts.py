"""Calls that QEMU itself has to answer, with a bound on how long it may take: libvirt waits for as long as QEMU hangs."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillWaiting
from contextvars import copy_context
from typing import TypeVar

from moorage.agent.virt.driver import VirtError

T = TypeVar("T")

#: QEMU answers within milliseconds; on a host that is crowded, within a second or two.
ANSWER_TIMEOUT_S = 30.0


class GuestHangs(VirtError):
    """QEMU does not answer. It can be ended: deleting and rebooting hard do that."""

    code = "virt.guest_hangs"


def answered(call: Callable[..., T], *arguments: object, within_s: float | None = None) -> T:
    """What `call` answers or raises. Raises `GuestHangs`.

    The thread of a call that was given up ends when QEMU does: libvirt lets go of it then.
    """
    limit_s = ANSWER_TIMEOUT_S if within_s is None else within_s
    answer: Future[T] = Future()
    context = copy_context()

    def ask() -> None:
        try:
            answer.set_result(context.run(call, *arguments))
        except Exception as error:  # noqa: BLE001 - nothing is swallowed: it is raised again where it was asked for
            answer.set_exception(error)

    threading.Thread(target=ask, name="libvirt-ask", daemon=True).start()
    try:
        return answer.result(limit_s)
    except StillWaiting as error:
        if answer.done():  # the call's own TimeoutError
            raise
        raise GuestHangs(
            f"the guest's QEMU did not answer within {limit_s:.0f} s: it hangs; reboot the server hard, or delete it"
        ) from error
