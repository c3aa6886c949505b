"""Group commit: which requests are written together, and the result of each request."""

import threading
from contextlib import contextmanager

import pytest

from moorage.core.errors import Conflict, Unavailable
from moorage.db.group_commit import MAX_GROUP, GroupCommit
from tests.group_commits import until_waiting


class ControlledWriter:
    """A writer that waits for `go`, so that a test decides which items arrive during a write.

    An item is (subject, name); a group may contain only one item of a subject.
    """

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
        """Submits the other items, one by one, while the first is being written. Returns {name: its error or None}."""
        outcomes = {}

        def submit(item):
            try:
                self.grouping.submit(item)
                outcomes[item[1]] = None
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the end of a thread: the test compares its error
                outcomes[item[1]] = error

        threads = []
        for number, item in enumerate(items):
            threads.append(threading.Thread(target=submit, args=(item,)))
            threads[-1].start()
            if number == 0:
                assert self.began.acquire(timeout=10)
            else:
                until_waiting(self.grouping, number)
        self.go.release(3 * len(items))
        for thread in threads:
            thread.join(timeout=10)
        return outcomes


def test_items_that_arrive_during_a_write_are_written_together():
    writer = ControlledWriter()
    outcomes = writer.submit_while_first_is_written([(name, name) for name in "abcdef"])
    assert [[name for _, name in group] for group in writer.groups] == [["a"], ["b", "c", "d", "e", "f"]]
    assert set(outcomes.values()) == {None}


def test_each_item_of_a_group_gets_its_own_outcome():
    writer = ControlledWriter(lambda item: Conflict(item[1]) if item[1] in "ce" else None)
    outcomes = writer.submit_while_first_is_written([(name, name) for name in "abcdef"])
    assert {name: error and error.message for name, error in outcomes.items()} == {
        "a": None, "b": None, "c": "c", "d": None, "e": "e", "f": None,
    }  # fmt: skip


def test_a_group_contains_one_item_of_a_subject_and_keeps_the_order():
    writer = ControlledWriter()
    writer.submit_while_first_is_written([("x", "a"), ("x", "b"), ("y", "c"), ("x", "d"), ("y", "e")])
    assert [[name for _, name in group] for group in writer.groups] == [["a"], ["b", "c"], ["d", "e"]]


def test_a_group_has_a_maximum_size():
    writer = ControlledWriter()
    writer.submit_while_first_is_written([(str(number), str(number)) for number in range(MAX_GROUP + 3)])
    assert [len(group) for group in writer.groups] == [1, MAX_GROUP, 2]


def test_an_item_whose_write_raises_does_not_fail_the_other_items_of_its_group():
    def outcome(item):
        if item[1] == "c":
            raise ValueError("c is broken")

    writer = ControlledWriter(outcome)
    outcomes = writer.submit_while_first_is_written([(name, name) for name in "abcd"])
    assert isinstance(outcomes.pop("c"), ValueError)
    assert outcomes == {"a": None, "b": None, "d": None}


def test_if_the_database_is_unavailable_the_whole_group_fails_after_one_attempt():
    def outcome(item):
        if item[1] != "a":
            raise Unavailable("no database")

    writer = ControlledWriter(outcome)
    outcomes = writer.submit_while_first_is_written([(name, name) for name in "abc"])
    assert [type(outcomes[name]) for name in "abc"] == [type(None), Unavailable, Unavailable]
    assert len(writer.groups) == 2


def test_after_the_writing_thread_was_stopped_the_next_item_is_written():
    def outcome(item):
        if item[1] == "a":
            raise SystemExit

    writer = ControlledWriter(outcome)
    writer.go.release()
    with pytest.raises(SystemExit):
        writer.grouping.submit(("a", "a"))
    writer.go.release()
    writer.grouping.submit(("b", "b"))
    assert [group[0][1] for group in writer.groups] == ["a", "b"]


def test_items_that_arrive_while_the_turn_is_waited_for_are_in_the_group():
    lock, groups = threading.Lock(), []
    grouping = GroupCommit(lambda items: groups.append(list(items)) or items, lambda item: [item], lambda: lock)
    threads = [threading.Thread(target=grouping.submit, args=(name,)) for name in "abc"]
    with lock:
        for number, thread in enumerate(threads, 1):
            thread.start()
            until_waiting(grouping, number)
    for thread in threads:
        thread.join()
    assert groups == [["a", "b", "c"]]


def test_a_group_whose_turn_does_not_come_fails_and_the_next_one_is_written():
    @contextmanager
    def turn():
        if failures:
            raise failures.pop()
        yield

    failures = [Unavailable("no database")]
    grouping = GroupCommit(lambda items: items, lambda item: [item], turn)
    with pytest.raises(Unavailable, match="no database"):
        grouping.submit("a")
    assert grouping.submit("b") == "b"
