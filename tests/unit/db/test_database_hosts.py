import re

import pytest
from sqlalchemy import make_url

from moorage.core.errors import StartError
from moorage.db.database_hosts import HUNG_S, LEFT_OUT_S, HostOrder, hosts_of, is_unwritable, refuses_writes
from moorage.db.engine import open_engine

A, B, C = ("a", 1), ("b", None), ("c", 3)


class Refused(Exception):
    pass


@pytest.mark.parametrize(
    ("query", "hosts"),
    [
        ("", []),
        ("?host=a", [("a", None)]),
        ("?host=a:1&host=b&host=10.0.0.7:3306", [("a", 1), ("b", None), ("10.0.0.7", 3306)]),
        ("?host=[2001:db8::3]:5433&host=[::1]", [("2001:db8::3", 5433), ("::1", None)]),
    ],
)
def test_the_hosts_of_a_url_are_those_of_its_query(query, hosts):
    assert hosts_of(make_url(f"postgresql://u@/x{query}")) == hosts


@pytest.mark.parametrize("host", ["a:0", "a:65536", "a:b", ":5432", "[::1", "a,b:x"])
@pytest.mark.parametrize("scheme", ["postgresql", "mariadb"])
def test_a_host_that_cannot_be_read_is_a_start_error_that_names_it(scheme, host):
    with pytest.raises(StartError, match=re.escape(f"host={host}; write host=NAME or host=NAME:PORT")):
        open_engine(f"{scheme}://u@/x?host=z&host={host}")


def test_a_host_in_two_places_is_a_start_error():
    with pytest.raises(StartError, match="has the host db and host=a: write all hosts in the query"):
        open_engine("postgresql://u@db/x?host=a&host=b")


def connecting(*up):
    """A function that connects to the hosts in `up`, and the list of those it was called with."""
    tried = []

    def connect(host):
        tried.append(host)
        if host not in up:
            raise Refused(host)
        return f"to {host}"

    return connect, tried


def test_the_first_host_that_answers_is_used_and_tried_first_from_then_on():
    order = HostOrder([A, B, C])
    connect, tried = connecting(B, C)
    assert order.connect(connect, Refused) == (f"to {B}", B)
    assert order.connect(connect, Refused) == (f"to {B}", B)
    assert tried == [A, B, B]
    assert order.hosts() == [B, C, A]


def test_if_no_host_answers_the_last_error_is_raised_and_all_are_tried_again_next_time():
    order = HostOrder([A, B])
    connect, tried = connecting()
    for _ in range(2):
        with pytest.raises(Refused):
            order.connect(connect, Refused)
    assert sorted(tried) == [A, A, B, B]


def test_an_error_that_is_not_the_drivers_is_not_taken_for_a_host_that_does_not_answer():
    connect, tried = connecting()
    with pytest.raises(Refused):
        HostOrder([A, B]).connect(connect, OSError)
    assert tried == [A]


def test_a_url_with_one_host_connects_once_with_the_arguments_of_the_url():
    connect, tried = connecting()
    with pytest.raises(Refused):
        HostOrder([]).connect(connect, Refused)
    assert tried == [None]


def test_a_host_that_gave_no_answer_is_tried_last():
    order = HostOrder([A, B, C])
    order.put_last(A, "no answer")
    assert order.hosts() == [B, C, A]
    order.put_last(A, "no answer")
    assert order.hosts() == [B, C, A]


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_a_host_that_gave_no_answer_is_left_out_for_a_while_and_then_tried_by_one_caller():
    clock = Clock()
    order = HostOrder([A, B], clock)
    tried = []

    def hang_or_refuse(host):
        tried.append(host)
        clock.now += HUNG_S if host == A else 0.0
        raise Refused(host)

    def attempt():
        tried.clear()
        with pytest.raises(Refused):
            order.connect(hang_or_refuse, Refused)
        return list(tried)

    assert attempt() == [A, B]
    assert attempt() == [B], "nobody waits for A"
    clock.now += LEFT_OUT_S

    def refuse_while_another_caller_comes(host):
        if host == A:
            assert attempt() == [B], "only the first caller waits for A"
        raise Refused(host)

    with pytest.raises(Refused):
        order.connect(refuse_while_another_caller_comes, Refused)
    connect, _ = connecting(A)
    clock.now += LEFT_OUT_S
    assert order.connect(connect, Refused) == (f"to {A}", A)
    assert order.connect(connect, Refused) == (f"to {A}", A), "a host that answers is used again"


def test_if_no_host_gave_an_answer_all_are_tried():
    order = HostOrder([A, B])
    for host in (A, B):
        order.leave_out(host)
    connect, tried = connecting()
    with pytest.raises(Refused):
        order.connect(connect, Refused)
    assert sorted(tried) == [A, B]


class DriverError(Exception):
    def __init__(self, *args, sqlstate=None):
        super().__init__(*args)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("error", "unwritable", "refuses"),
    [
        (DriverError(1290, "read-only"), True, True),
        (DriverError("cannot execute", sqlstate="25006"), True, True),
        (DriverError(1047, "not yet prepared"), True, False),  # a commit may have been under way
        (DriverError(1213, "deadlock"), False, False),
        (DriverError("duplicate", sqlstate="23505"), False, False),
        (None, False, False),
    ],
)
def test_errors_of_servers_that_take_no_writes(error, unwritable, refuses):
    assert (is_unwritable(error), refuses_writes(error)) == (unwritable, refuses)
