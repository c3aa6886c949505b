"""The provider configuration of a running host: taken again without a restart, or left as it was.

    a file changed, SIGHUP, `apply`  ->  read and checked  ->  merged, published  ->  kept, with what it replaced

What is wrong is said, and the last good configuration stays in force. A file is judged as at the start: one that
contradicts the driver is refused, for the next start would fail on it.
"""

import logging
import threading
from collections.abc import Mapping
from datetime import datetime, timedelta

from moorage.agent.provider_config.current_set import CurrentConfigSet
from moorage.agent.provider_config.installation import replaced_files, wait_until_free
from moorage.agent.provider_config.load import (
    DirectoryStamp,
    check_contents,
    directory_stamp,
    load_provider_files,
    refusal_error,
)
from moorage.agent.tracker.resource_tracker import ResourceTracker, UpdateResult
from moorage.core.clock import Clock
from moorage.core.errors import MoorageError, StartError

log = logging.getLogger(__name__)

#: Between attempts while Placement is away.
LONGEST_PAUSE_S = 60.0


class ProviderConfigReloader:
    """`record_start` once after the agent's start; the rest from any thread."""

    def __init__(self, tracker: ResourceTracker, current: CurrentConfigSet, clock: Clock) -> None:
        self._tracker = tracker
        self._clock = clock
        self._one_at_a_time = threading.Lock()
        self.current = current
        #: Of further hosts that this process simulates: they take what the first one has taken.
        self.followers: list[ResourceTracker] = []
        self.files = tracker.files
        #: Of the files that were judged last, whatever came of it.
        self.judged: DirectoryStamp = ()
        #: Why the files as they are now do not count; None: they do.
        self.refused: str | None = None

    def record_start(self) -> None:
        """What the start has read is in force."""
        self.judged = self._tracker.stamp
        self.current.put_in_force(self._tracker.texts, self._clock.now())

    def reload(self, *, is_held: bool = False) -> UpdateResult:
        """Read the files and let them count. `is_held`: the caller keeps others from changing them meanwhile.

        Raises `StartError` for faults, and what Placement answers or does not: nothing has changed then.
        """
        with self._one_at_a_time:
            if not is_held:
                wait_until_free(self.files.directory, self._clock)
            stamped = directory_stamp(self.files.directory)
            try:
                report = load_provider_files(self.files)
                done = self._tracker.adopt_configs(report.configs)
            except StartError as error:
                self.judged, self.refused = stamped, error.message
                raise
            self.judged, self.refused = stamped, None
            for follower in self.followers:
                follower.follow_configs(report.configs)
            if self.current.put_in_force(report.texts, self._clock.now()):
                log.info(
                    "provider configuration changed",
                    extra={"files": sorted(report.texts), "writes": done.written},
                )
            return done

    def replace(self, contents: Mapping[str, bytes]) -> UpdateResult:
        """Put such files in the place of the present ones and take them. Raises as `reload`; all is as before then."""
        report = check_contents(contents, self.files.directory)
        if report.faults:
            raise refusal_error(self.files.directory, report.faults)
        with replaced_files(self.files.directory, contents):
            return self.reload(is_held=True)

    def preview_files(self, contents: Mapping[str, bytes]) -> UpdateResult:
        """What `reload` would do with such files in the directory. Raises what it would raise."""
        report = check_contents(contents, self.files.directory)
        if report.faults:
            raise refusal_error(self.files.directory, report.faults)
        return self._tracker.preview_configs(report.configs)


class ProviderConfigTask:
    """Looks for changed files each `period_s` (0: never by itself), and takes them at once when it is `asked`.

    A change counts when nothing has changed since the look before: nobody's half-written files are read.
    """

    def __init__(self, reloader: ProviderConfigReloader, *, host: str, clock: Clock, period_s: float) -> None:
        self.name = provider_config_topic(host)
        self._reloader = reloader
        self._clock = clock
        self._period_s = period_s
        self._seen: DirectoryStamp = ()
        self._reload_requested = threading.Event()
        self._failures = 0

    def request_reload(self) -> None:
        """The next run reads the files, changed or not. Whoever asks wakes the topic, too."""
        self._reload_requested.set()

    def run_once(self) -> datetime | None:
        asked = self._reload_requested.is_set()
        self._reload_requested.clear()
        now = directory_stamp(self._reloader.files.directory)
        is_new = now != self._reloader.judged
        if asked or (is_new and now == self._seen and self._period_s):
            return self._take()
        self._seen = now
        return self._next(self._period_s)

    def _take(self) -> datetime | None:
        try:
            self._reloader.reload()
        except StartError as error:
            log.error(
                "the changed provider configuration is refused; the last good one stays in force",
                extra={"why": error.message},
            )
        except MoorageError as error:
            self._failures += 1
            log.warning("the provider configuration could not be taken; trying again", extra={"why": error.message})
            self._reload_requested.set()
            return self._next(min(float(1 << min(self._failures, 16)), LONGEST_PAUSE_S))
        self._failures = 0
        return self._next(self._period_s)

    def _next(self, pause_s: float) -> datetime | None:
        return self._clock.now() + timedelta(seconds=pause_s) if pause_s else None


def provider_config_topic(host: str) -> str:
    """What to wake so that `ProviderConfigTask` runs."""
    return f"provider configuration of {host}"
