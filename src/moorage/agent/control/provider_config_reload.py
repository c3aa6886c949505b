"""Reloads the provider configuration of a running host, without a restart.

    changed file | SIGHUP | `apply`  ->  read and check  ->  merge and publish  ->  store, with the previous set

After a fault, the last accepted configuration stays in force. The rules are those of the start: a file that contradicts
the driver is refused, because the agent could not start with it.
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
from moorage.core.backoff import Backoff
from moorage.core.clock import Clock
from moorage.core.errors import MoorageError, StartError

log = logging.getLogger(__name__)

#: Between attempts while Placement does not answer.
BACKOFF = Backoff(first_s=2.0, longest_s=60.0)


class ProviderConfigReloader:
    """Call `record_start` once after the agent has started. The other methods are thread-safe."""

    def __init__(self, tracker: ResourceTracker, current: CurrentConfigSet, clock: Clock) -> None:
        self._tracker = tracker
        self._clock = clock
        self._reload_lock = threading.Lock()
        self.current = current
        #: Trackers of the other hosts that this process simulates; they use the first host's configuration.
        self.followers: list[ResourceTracker] = []
        self.files = tracker.files
        #: Stamp of the files that were checked last, accepted or not.
        self.checked_stamp: DirectoryStamp = ()
        #: Why the present files were refused; None: they are in force.
        self.refused: str | None = None

    def record_start(self) -> None:
        """Records the files that `ResourceTracker.start` has read as those in force."""
        self.checked_stamp = self._tracker.stamp
        self.current.put_in_force(self._tracker.texts, self._clock.now())

    def reload(self, *, is_held: bool = False) -> UpdateResult:
        """Reads the files and puts them in force. `is_held`: the caller holds the directory already.

        Raises `StartError` for faults, and the errors of Placement's client; then nothing has changed.
        """
        with self._reload_lock:
            if not is_held:
                wait_until_free(self.files.directory, self._clock)
            stamp = directory_stamp(self.files.directory)
            try:
                report = load_provider_files(self.files)
                done = self._tracker.adopt_configs(report.configs)
            except StartError as error:
                self.checked_stamp, self.refused = stamp, error.message
                raise
            self.checked_stamp, self.refused = stamp, None
            for follower in self.followers:
                follower.follow_configs(report.configs)
            if self.current.put_in_force(report.texts, self._clock.now()):
                log.info(
                    "provider configuration changed",
                    extra={"files": sorted(report.texts), "writes": done.written},
                )
            return done

    def replace(self, contents: Mapping[str, bytes]) -> UpdateResult:
        """Replaces the present files by `contents` and reloads. Raises the errors of `reload`; the files are unchanged
        then.
        """
        report = check_contents(contents, self.files.directory)
        if report.faults:
            raise refusal_error(self.files.directory, report.faults)
        with replaced_files(self.files.directory, contents):
            return self.reload(is_held=True)

    def preview_files(self, contents: Mapping[str, bytes]) -> UpdateResult:
        """Returns the result that `replace` would have, or raises the same errors, and writes nothing."""
        report = check_contents(contents, self.files.directory)
        if report.faults:
            raise refusal_error(self.files.directory, report.faults)
        return self._tracker.preview_configs(report.configs)


class ProviderConfigTask:
    """Reloads changed files every `period_s` (0: only on request), and at once after `request_reload`.

    It reloads changed files when two successive runs have seen the same stamp, so that it does not read incomplete
    files.
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
        """Makes the next run reload the files even if they are unchanged. The caller must also wake the task's
        topic.
        """
        self._reload_requested.set()

    def run_once(self) -> datetime | None:
        is_requested = self._reload_requested.is_set()
        self._reload_requested.clear()
        stamp = directory_stamp(self._reloader.files.directory)
        is_new = stamp != self._reloader.checked_stamp
        if is_requested or (is_new and stamp == self._seen and self._period_s):
            return self._reload()
        self._seen = stamp
        return self._next_run(self._period_s)

    def _reload(self) -> datetime | None:
        try:
            self._reloader.reload()
        except StartError as error:
            log.error(
                "the changed provider configuration was refused; the last accepted one stays in force",
                extra={"why": error.message},
            )
        except MoorageError as error:
            self._failures += 1
            log.warning("the provider configuration could not be reloaded; trying again", extra={"why": error.message})
            self._reload_requested.set()
            return self._next_run(BACKOFF.pause_s(self._failures))
        self._failures = 0
        return self._next_run(self._period_s)

    def _next_run(self, pause_s: float) -> datetime | None:
        return self._clock.now() + timedelta(seconds=pause_s) if pause_s else None


def provider_config_topic(host: str) -> str:
    """Wake this topic to run `ProviderConfigTask` at once."""
    return f"provider configuration of {host}"
