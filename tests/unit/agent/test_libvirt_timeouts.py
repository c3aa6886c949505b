"""Calls that QEMU must answer have a time limit, and otherwise behave like direct calls."""

import threading

import pytest

from moorage.agent.virt.libvirt_calls import GuestHangs, SerializedCalls, call_with_timeout


def test_what_is_answered_or_raised_comes_back():
    assert call_with_timeout(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        call_with_timeout(divmod, 7, 0)


def test_a_call_that_never_ends_is_given_up_with_a_sentence():
    never = threading.Event()
    with pytest.raises(
        GuestHangs, match="QEMU hangs: it did not answer within 0 s; reboot the server hard, or delete it"
    ):
        call_with_timeout(never.wait, within_s=0.01)
    never.set()


def test_a_timeout_of_the_call_itself_is_not_taken_for_a_guest_that_hangs():
    def times_out():
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        call_with_timeout(times_out)


def test_one_name_is_held_once_and_another_one_meanwhile():
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
