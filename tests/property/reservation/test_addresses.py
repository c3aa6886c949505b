"""The addresses of a reservation, and the time when there are enough, compared with a simple table of minutes."""

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.reservation.capacity.addresses import AddressAllocation, AddressBook, AddressRequest, RegisteredAddress
from moorage.reservation.capacity.host_selection import Shortage
from moorage.reservation.model.reservation_requests import FloatingIpRequest

ZERO = datetime(2026, 1, 1, tzinfo=UTC)
SPAN = 12  # minutes; few, so that ends meet starts often
NETWORKS = ("a", "b")


def at(minute):
    return ZERO + timedelta(minutes=minute)


def registered(number):
    return RegisteredAddress(str(number), NETWORKS[number % 2], "subnet", f"192.0.2.{number}", True, ZERO, None)


ADDRESSES = [registered(number) for number in range(6)]
periods = st.tuples(st.integers(0, SPAN), st.integers(0, SPAN)).filter(lambda pair: pair[0] != pair[1]).map(sorted)
#: As admission ensures: an address is never reserved twice at a time.
takings = st.lists(st.tuples(st.sampled_from(ADDRESSES), periods), max_size=14).map(
    lambda rows: [
        AddressAllocation(one.id, at(period[0]), at(period[1]))
        for position, (one, period) in enumerate(rows)
        if not any(
            one == other and period[0] < busy[1] and busy[0] < period[1] for other, busy in rows[:position]
        )
    ]
)  # fmt: skip
requests = st.builds(
    lambda network, amount, names: FloatingIpRequest(
        network, max(amount, len(names), 1), tuple(f"192.0.2.{number}" for number in names)
    ),
    st.sampled_from(NETWORKS),
    st.integers(1, 3),
    st.lists(st.integers(0, 6), max_size=2, unique=True),
)
asked = st.lists(requests, min_size=1, max_size=3).map(
    lambda found: [AddressRequest(str(position), request) for position, request in enumerate(found)]
)


def are_free(taken, wants, start, end):
    """Whether enough addresses are free. Counting suffices, because only the required addresses of a network differ."""
    free = {
        each.floating_ip_address: each.floating_network_id
        for each in ADDRESSES
        if not any(busy.floating_ip_id == each.id and busy.start < end and start < busy.end for busy in taken)
    }
    required = [(want.request.network_id, address) for want in wants for address in want.request.required]
    if len(set(required)) < len(required) or any(free.get(address) != network for network, address in required):
        return False
    return all(
        list(free.values()).count(network) >= sum(each.request.amount for each in wants if each.request.network_id == network)
        for network in NETWORKS
    )  # fmt: skip


@given(takings, asked, periods)
@settings(max_examples=300, deadline=None)
def test_addresses_are_chosen_exactly_if_enough_are_free(taken, wants, period):
    start, end = map(at, period)
    chosen = AddressBook(ADDRESSES, taken).choose(wants, start, end)
    assert isinstance(chosen, Shortage) != are_free(taken, wants, start, end)
    if isinstance(chosen, Shortage):
        return
    given_out = [each.id for mine in chosen.values() for each in mine]
    assert len(set(given_out)) == len(given_out)
    for want in wants:
        mine = chosen[want.reservation_id]
        assert len(mine) == want.request.amount
        assert {each.floating_network_id for each in mine} == {want.request.network_id}
        assert set(want.request.required) <= {each.floating_ip_address for each in mine}


@given(takings, asked, st.integers(0, SPAN), st.integers(1, 5))
@settings(max_examples=300, deadline=None)
def test_the_first_fit_is_the_first_minute_at_which_all_addresses_are_free(taken, wants, earliest, length):
    latest = SPAN + 1
    slow = next(
        (minute for minute in range(earliest, latest + 1) if are_free(taken, wants, at(minute), at(minute + length))),
        None,
    )  # fmt: skip
    found = AddressBook(ADDRESSES, taken).first_fit(wants, at(earliest), at(latest), timedelta(minutes=length))
    assert found == (None if slow is None else at(slow))


@given(takings, st.sampled_from(NETWORKS), st.integers(1, 3), st.sets(st.sampled_from("012345"), max_size=3), periods)
@settings(max_examples=200, deadline=None)
def test_addresses_in_use_are_kept_or_the_change_is_refused(taken, network, more, held, period):
    held = frozenset(key for key in held if ADDRESSES[int(key)].floating_network_id == network)
    want = AddressRequest("r", FloatingIpRequest(network, len(held) + more - 1 or 1), held, keep_held=True)
    chosen = AddressBook(ADDRESSES, taken).choose([want], *map(at, period))
    if not isinstance(chosen, Shortage):
        assert held <= {each.id for each in chosen["r"]}
