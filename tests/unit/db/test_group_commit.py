"""Which requests form a group, and the result of each request."""

import threading

import pytest

from moorage.core.errors import Conflict, Unavailable
from moorage.db.group_commit import MAX_GROUP, GroupCommit


class Desk:
    """Writes that wait for `go`, so that a test chooses which items arrive meanwhile. Items are (subject, name)."""

    def __init__(self, outcome=lambda item: None):
        self.groups = []
        self.began = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.outcome = outcome
        self.grouping = GroupCommit(self.write, lambda item: [item[0]])

    def write(self, items):
        self.groups.append(list(items))
        self.began.release()
        assert self.go.acquire(timeout=10)
        return [self.outcome(item) for item in items]

    def submit_while_first_is_written(self, items):
        """{name: its outcome}; the first item is being written while the others arrive one by one."""
        outcomes = {}

        def submit(item):
            try:
                self.grouping.submit(item)
                outcomes[item[1]] = None
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the test checks it
                outcomes[item[1]] = error

        threads = []
        for number, item in enumerate(items):
            threads.append(threading.Thread(target=submit, args=(item,)))
            threads[-1].start()
            if number == 0:
                assert self.began.acquire(timeout=10)
            else:
                self.until_waiting(number)
        self.go.release(3 * len(items))
        for thread in threads:
            thread.join(timeout=10)
        return outcomes

    def until_waiting(self, count):
        for _ in range(10_000):
            if len(self.grouping._waiting) >= count:
                return
            threading.Event().wait(0.001)
        raise AssertionError("it does not wait")


def test_who_comes_meanwhile_is_written_together():
    desk = Desk()
    outcomes = desk.submit_while_first_is_written([(name, name) for name in "abcdef"])
    assert [[name for _, name in group] for group in desk.groups] == [["a"], ["b", "c", "d", "e", "f"]]
    assert set(outcomes.values()) == {None}


def test_everybody_gets_their_own_outcome():
    desk = Desk(lambda item: Conflict(item[1]) if item[1] in "ce" else None)
    outcomes = desk.submit_while_first_is_written([(name, name) for name in "abcdef"])
    assert {name: error and error.message for name, error in outcomes.items()} == {
        "a": None, "b": None, "c": "c", "d": None, "e": "e", "f": None,
    }  # fmt: skip


def test_nothing_is_twice_in_a_group_and_order_stays():
    desk = Desk()
    desk.submit_while_first_is_written([("x", "a"), ("x", "b"), ("y", "c"), ("x", "d"), ("y", "e")])
    assert [[name for _, name in group] for group in desk.groups] == [["a"], ["b", "c"], ["d", "e"]]


def test_a_group_is_bounded():
    desk = Desk()
    desk.submit_while_first_is_written([(str(number), str(number)) for number in range(MAX_GROUP + 3)])
    assert [len(group) for group in desk.groups] == [1, MAX_GROUP, 2]


def test_one_that_breaks_the_group_does_not_fail_its_neighbours():
    def outcome(item):
        if item[1] == "c":
            raise ValueError("c is broken")

    desk = Desk(outcome)
    outcomes = desk.submit_while_first_is_written([(name, name) for name in "abcd"])
    assert isinstance(outcomes.pop("c"), ValueError)
    assert outcomes == {"a": None, "b": None, "d": None}


def test_without_a_database_all_are_told_at_once():
    def outcome(item):
        if item[1] != "a":
            raise Unavailable("no database")

    desk = Desk(outcome)
    outcomes = desk.submit_while_first_is_written([(name, name) for name in "abc"])
    assert [type(outcomes[name]) for name in "abc"] == [type(None), Unavailable, Unavailable]
    assert len(desk.groups) == 2


def test_a_leader_that_is_stopped_leaves_nobody_waiting():
    def outcome(item):
        if item[1] == "a":
            raise SystemExit

    desk = Desk(outcome)
    desk.go.release()
    with pytest.raises(SystemExit):
        desk.grouping.submit(("a", "a"))
    desk.go.release()
    desk.grouping.submit(("b", "b"))
    assert [group[0][1] for group in desk.groups] == ["a", "b"]
