"""Calls that QEMU must answer have a time limit, and otherwise behave like direct calls."""

import threading

import pytest

from moorage.agent.virt.libvirt_calls import GuestHangs, SerializedCalls, call_with_timeout


def test_a_call_with_a_timeout_returns_the_result_or_raises_the_error_of_the_call():
    assert call_with_timeout(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        call_with_timeout(divmod, 7, 0)


def test_a_call_that_does_not_end_within_the_timeout_raises_guest_hangs():
    never = threading.Event()
    with pytest.raises(
        GuestHangs, match="QEMU hangs: it did not answer within 0 s; reboot the server hard, or delete it"
    ):
        call_with_timeout(never.wait, within_s=0.01)
    never.set()


def test_a_timeout_error_of_the_call_itself_is_raised_unchanged():
    def times_out():
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        call_with_timeout(times_out)


def test_calls_for_one_name_run_one_after_the_other_and_for_different_names_in_parallel():
    alone, order = SerializedCalls(), []
    inside, go_on = threading.Event(), threading.Event()

    def first():
        with alone.hold("a"):
            inside.set()
            go_on.wait(30)
            order.append("first")

    def second():
        with alone.hold("a"):
            order.append("second")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(30)
    threads[1].start()
    with alone.hold("b"):
        order.append("another")
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert order == ["another", "first", "second"]
