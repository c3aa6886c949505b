"""The lease's arithmetic, on clocks that stand still until they are moved."""

import pytest

from moorage.core.errors import Conflict, Unavailable
from moorage.placement.store.writer_lease import MARGIN, SHARED_S, LeaseChange, LeaseRow, WriterLease


class Database:
    """The row that all see."""

    def __init__(self):
        self.row = LeaseRow(7, None, 0.0, 0, None)

    def change(self, wanted_change):
        if wanted_change is not None and wanted_change.version == self.row.version:
            self.row = LeaseRow(
                self.row.last,
                wanted_change.holder,
                wanted_change.length_s,
                wanted_change.version + 1,
                wanted_change.visitor,
            )
        return self.row

    def commit(self):
        self.row = self.row._replace(last=self.row.last + 1)
        return self.row.last


class Process:
    def __init__(self, name, database):
        self.time = 100.0
        self.database = database
        self.lease = WriterLease(name, length_s=1.0, clock=lambda: self.time)

    def exchange(self):
        """One round trip, in no time; whether the lease is held."""
        sent, known, wanted_change = self.lease.now(), self.lease.known(), self.lease.wanted_change()
        return self.lease.answered(wanted_change, self.database.change(wanted_change), sent, known)

    def take(self):
        assert any(self.lease.last() is None and self.exchange() for _ in range(3))


@pytest.fixture
def database():
    return Database()


@pytest.fixture
def own(database):
    return Process("own", database)


@pytest.fixture
def other(database):
    return Process("other", database)


def test_who_is_alone_takes_it_and_knows_the_last_number(own):
    assert own.lease.last() is None
    assert not own.exchange(), "looked first"
    assert own.exchange()
    assert own.lease.last() == 7


def test_nobody_takes_what_nobody_wants(own, database):
    own.exchange()
    assert not own.exchange()
    assert database.row.holder is None
    assert database.row.visitor == "own", "but it says that it is there"


def test_it_is_reckoned_with_from_before_it_was_sent_and_for_less_than_its_length(own, database):
    own.lease.last()
    own.exchange()
    sent, known, wanted_change = own.lease.now(), own.lease.known(), own.lease.wanted_change()
    own.time += 0.5
    assert own.lease.answered(wanted_change, database.change(wanted_change), sent, known)
    own.time = sent + 1 - MARGIN - 0.001
    assert own.lease.last() == 7
    own.time = sent + 1 - MARGIN
    assert own.lease.last() is None


def test_an_answer_that_comes_too_late_gives_nothing(own, database):
    own.lease.last()
    own.exchange()
    sent, known, wanted_change = own.lease.now(), own.lease.known(), own.lease.wanted_change()
    own.time += 1.0
    own.lease.answered(wanted_change, database.change(wanted_change), sent, known)
    assert own.lease.last() is None


def test_a_renewal_goes_on_from_its_own_beginning(own):
    own.take()
    own.time += 0.6
    assert own.lease.last() == 7
    assert own.exchange()
    own.time += 0.6
    assert own.lease.last() == 7


def test_others_wait_for_its_whole_length_from_when_they_saw_it(own, other, database):
    own.take()
    assert other.lease.is_in_the_way(database.row.holder)
    assert other.lease.left_s(database.row) == 1.0
    other.time += 0.4
    assert other.lease.left_s(database.row) == pytest.approx(0.6)
    own.time += 0.4
    own.lease.last()
    assert own.exchange()
    assert other.lease.left_s(database.row) == 1.0, "renewed"
    other.time += 2.0
    assert other.lease.left_s(database.row) == 0.0
    assert not own.lease.is_in_the_way(database.row.holder)
    assert own.lease.left_s(database.row) == 0.0


def test_the_holder_does_not_renew_and_gives_it_back_when_somebody_comes(own, other, database):
    own.take()
    other.exchange()
    other.exchange()
    assert database.row.visitor == "other"
    assert other.lease.left_s(database.row) == 1.0, "to say that one is there takes it from nobody"
    own.lease.last()
    assert not own.exchange()
    assert own.lease.last() is None
    assert not own.exchange()
    assert database.row.holder is None
    assert other.lease.left_s(database.row) == 0.0


def test_as_long_as_both_are_there_nobody_takes_it(own, other):
    for process in (other, other, own, own):
        process.exchange()
    for _ in range(20):
        for process in (own, other):
            process.lease.last()
            for _ in range(3):
                assert not process.exchange()
            process.time += 2.0
    assert (own.lease.last(), other.lease.last()) == (None, None)


def test_when_the_other_is_gone_it_is_taken_again_after_a_while(own, other, database):
    other.exchange()
    other.exchange()
    own.lease.last()
    for _ in range(3):
        assert not own.exchange()
    own.time += SHARED_S - 0.1
    assert not own.exchange()
    own.time += 0.1
    assert own.exchange()


def test_the_lease_of_a_dead_process_is_taken_away_when_it_is_over(own, other, database):
    own.take()
    other.exchange()
    other.exchange()
    assert database.row.holder == own.lease.name
    other.time += 0.99
    other.exchange()
    assert database.row.holder == own.lease.name
    other.time += 0.01 + 1.0  # its own change of the row made it wait anew
    other.exchange()
    assert database.row.holder is None


def test_who_leaves_is_waited_for_by_nobody(own, other, database):
    own.take()
    database.change(own.lease.leave())
    assert own.lease.last() is None
    assert (database.row.holder, database.row.visitor) == (None, None)
    other.take()


def test_who_leaves_does_not_take_anothers_lease_with_him(own, other, database):
    own.take()
    other.exchange()
    other.exchange()
    database.change(other.lease.leave())
    assert (database.row.holder, database.row.visitor) == (own.lease.name, None)


def test_while_a_commit_is_under_way_reads_ask(own, database):
    own.take()
    with own.lease.writing():
        assert own.lease.last() is None, "others may have seen it already"
        own.lease.wrote(database.commit())
        assert own.lease.last() is None
    assert own.lease.last() == 8


def test_a_commit_that_failed_for_certain_changes_nothing(own):
    own.take()
    with pytest.raises(Conflict), own.lease.writing():
        raise Conflict("full")
    assert own.lease.last() == 7


@pytest.mark.parametrize("error", [Unavailable("gone"), KeyboardInterrupt()])
def test_a_commit_of_which_nobody_heard_ends_the_lease_and_its_name(own, database, error):
    own.take()
    name = own.lease.name
    with pytest.raises(type(error)), own.lease.writing():
        raise error
    assert own.lease.last() is None
    assert own.lease.name != name
    assert not own.lease.is_in_the_way(name), "it need not wait for itself"
    database.commit()
    own.take()
    assert own.lease.last() == 8
    assert database.row.holder == own.lease.name


def test_what_was_asked_under_the_old_name_grants_nothing(own, database):
    own.take()
    sent, known, wanted_change = own.lease.now(), own.lease.known(), own.lease.wanted_change()
    own.lease.renounce()
    assert not own.lease.answered(wanted_change, database.change(wanted_change), sent, known)
    assert own.lease.last() is None


def test_a_database_that_was_set_back_is_not_answered_for(own, database):
    own.take()
    database.row = database.row._replace(last=5)
    assert not own.exchange()
    assert own.lease.last() is None, "whoever asks finds it out"
    own.take()
    assert own.lease.last() == 5


def test_a_lease_that_was_set_back_is_another_one_afterwards(own, other, database):
    before = database.row
    own.take()
    first = database.row
    other.exchange()
    other.time += 5.0
    assert other.lease.left_s(first) == 0.0
    database.row = before
    assert not own.exchange()
    own.take()
    assert database.row.version == first.version
    assert other.lease.left_s(database.row) == 1.0


def test_a_wish_that_was_too_late_changes_nothing(own, database):
    own.take()
    assert database.change(LeaseChange(0, "somebody.0", 1.0, "somebody")).holder == own.lease.name
