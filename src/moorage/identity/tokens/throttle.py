"""Slows down failed logins, by account and address, and by address alone.

After too many failures, the next attempt must wait, twice as long each time, up to `BACKOFF.longest_s`. During the wait
nothing is checked, so guessing costs no work here either. Failures are counted per pair of account and address, so that
a stranger at another address cannot lock a user out: the user's own address still has its free attempts. Failures of
strangers only shorten these: under attack (`ATTACK_FAILURES` on the account), an address that never logged in to the
account has one free attempt instead of `FREE_FAILURES`. An address that fails with many accounts must wait too, except
for accounts that have logged in from it before.

The counts are in this process's memory, at most `MAX_ENTRIES` of each kind; the oldest is dropped first. A count ends
after `FORGET_AFTER` without a failure, and with a restart.

An administrator sees the failures of the accounts (`failures_of_accounts`) and clears those of one: the database counts
how often, and each process clears its own counts when it reads a new number (`apply_unlocks`).

Not here: the check of a password. Unknown accounts are counted like known ones.
"""

import hashlib
import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from moorage.core.backoff import Backoff
from moorage.core.clock import Clock
from moorage.core.errors import TooManyRequests

log = logging.getLogger(__name__)

#: Consecutive failures without a wait: of a pair, and of an address with any account.
FREE_FAILURES = 5
FREE_FAILURES_OF_ADDRESS = 20

#: Failures of an account, from all addresses together, that count as an attack.
ATTACK_FAILURES = 50

#: Waits after the failures that are free.
BACKOFF = Backoff(first_s=1.0, longest_s=60.0)

FORGET_AFTER = timedelta(minutes=15)

MAX_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class FailedLogins:
    """The failures of one account that still count. Empty addresses do not identify the caller."""

    failures: int
    addresses: tuple[str, ...]  #: from which they came
    locked_until: datetime | None  #: when all of these addresses may try again; None if they all may now


@dataclass(slots=True)
class _FailureCount:
    failures: int
    last: datetime
    wait_s: float  #: after the last failure
    next_try: datetime
    account: bytes = b""  #: of a pair: the key of its account
    address: str = ""  #: of a pair


class _FailureCounts:
    """Failures by key, the most recent keys only; not thread-safe."""

    def __init__(self) -> None:
        self._counts: OrderedDict[bytes, _FailureCount] = OrderedDict()

    def failures(self, key: bytes, now: datetime) -> int:
        count = self._counts.get(key)
        # A clock that was set back must not lock anyone out.
        return count.failures if count and abs(now - count.last) < FORGET_AFTER else 0

    def wait_s(self, key: bytes, now: datetime) -> float:
        if not self.failures(key, now):
            return 0.0
        wait_s = (self._counts[key].next_try - now).total_seconds()
        return wait_s if 0 < wait_s <= BACKOFF.longest_s else 0.0

    def begin(self, key: bytes, now: datetime) -> None:
        """Start an attempt: after a wait, only one attempt is allowed, not a hundred at once."""
        if self.failures(key, now):
            count = self._counts[key]
            count.next_try = now + timedelta(seconds=count.wait_s)

    def add(self, key: bytes, now: datetime, free: int, account: bytes = b"", address: str = "") -> None:
        failures = self.failures(key, now) + 1
        wait_s = BACKOFF.pause_s(failures - free + 1)
        self._counts[key] = _FailureCount(failures, now, wait_s, now + timedelta(seconds=wait_s), account, address)
        self._counts.move_to_end(key)
        if len(self._counts) > MAX_ENTRIES:
            self._counts.popitem(last=False)

    def succeeded(self, key: bytes) -> None:
        """The attempt that `begin` started succeeded."""
        if count := self._counts.get(key):
            count.next_try = count.last

    def forget(self, key: bytes) -> None:
        self._counts.pop(key, None)

    def present(self, now: datetime) -> Iterator[tuple[bytes, _FailureCount]]:
        """The counts that have not ended, by key."""
        return ((key, count) for key, count in list(self._counts.items()) if self.failures(key, now))


class LoginThrottle:
    """The throttle of one process. Thread-safe. `address` is "" if it does not identify the caller."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pairs, self._accounts, self._addresses = _FailureCounts(), _FailureCounts(), _FailureCounts()
        #: {account: the number of its unlocks that this process has applied}; those without one are left out
        self._unlocks: dict[str, int] = {}
        #: the most recent pairs that have logged in
        self._familiar: OrderedDict[bytes, None] = OrderedDict()

    def check(self, account: str, address: str) -> None:
        """Call this before checking a password. Raises `TooManyRequests`."""
        pair, where, now = _key(account, address), _key(address), self._clock.now()
        with self._lock:
            counts = [(self._pairs, pair)]
            if address and pair not in self._familiar:
                counts.append((self._addresses, where))
            wait_s = max(kind.wait_s(key, now) for kind, key in counts)
            if wait_s == 0:
                for kind, key in counts:
                    kind.begin(key, now)
                return
        seconds = math.ceil(wait_s)
        log.info("a login must wait", extra={"address": address or "-", "seconds": seconds})
        raise TooManyRequests(
            f"too many failed logins; try again in {seconds} seconds", code="identity.too_many", retry_after_s=seconds
        )

    def record_failure(self, account: str, address: str) -> None:
        pair, whose, where, now = _key(account, address), _key(account), _key(address), self._clock.now()
        with self._lock:
            is_familiar = pair in self._familiar
            is_pressed = self._accounts.failures(whose, now) >= ATTACK_FAILURES
            self._pairs.add(pair, now, 1 if is_pressed and not is_familiar else FREE_FAILURES, whose, address)
            self._accounts.add(whose, now, ATTACK_FAILURES)
            if address and not is_familiar:
                self._addresses.add(where, now, FREE_FAILURES_OF_ADDRESS)

    def record_success(self, account: str, address: str) -> None:
        pair = _key(account, address)
        with self._lock:
            self._pairs.forget(pair)
            self._addresses.succeeded(_key(address))
            self._familiar[pair] = None
            self._familiar.move_to_end(pair)
            if len(self._familiar) > MAX_ENTRIES:
                self._familiar.popitem(last=False)

    def failures_of_accounts(self, accounts: Iterable[str]) -> Mapping[str, FailedLogins]:
        """The failures of those `accounts` that have any, from whose addresses somebody may have to wait."""
        now, found = self._clock.now(), dict[bytes, list[tuple[_FailureCount, float]]]()
        with self._lock:
            for key, count in self._pairs.present(now):
                wait_s = self._pairs.wait_s(key, now)
                if count.address and key not in self._familiar:
                    wait_s = max(wait_s, self._addresses.wait_s(_key(count.address), now))
                found.setdefault(count.account, []).append((count, wait_s))
        return {account: _failed_logins(found[key], now) for account in accounts if (key := _key(account)) in found}

    def apply_unlocks(self, unlocks: Iterable[tuple[str, int]]) -> None:
        """(account, how often it was unlocked): forgets the failures of the accounts that were unlocked since the last
        call, and of the addresses that failed with them, so that their owners can log in from there at once.
        """
        with self._lock:
            for account, number in unlocks:
                if number > self._unlocks.get(account, 0):
                    self._unlocks[account] = number
                    self._clear(_key(account))

    def _clear(self, whose: bytes) -> None:
        for pair, count in self._pairs.present(self._clock.now()):
            if count.account == whose:
                self._pairs.forget(pair)
                self._addresses.forget(_key(count.address))
        self._accounts.forget(whose)


def _failed_logins(counts: list[tuple[_FailureCount, float]], now: datetime) -> FailedLogins:
    wait_s = max(wait_s for _, wait_s in counts)
    return FailedLogins(
        sum(count.failures for count, _ in counts),
        tuple(sorted({count.address for count, _ in counts})),
        now + timedelta(seconds=wait_s) if wait_s else None,
    )


def _key(*parts: str) -> bytes:
    """A key of fixed length, since a client may send a name of any length."""
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=16).digest()
