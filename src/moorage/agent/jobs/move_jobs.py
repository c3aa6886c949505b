"""A host's part in moving a server: resize, cold and live migration, shelve. By kind of job::

move-out:    stop -> snapshot -> unplug   after a failure: plug -> start, if the server ran
move-in:     a build from the image that move-out made; does not start a server that was off
move-back:   plug -> start                undoes move-out, which keeps the domain and its disk
remake:      plug -> rebuild              from that image, on the same host; a failure leaves it off, without devices
strip:       stop -> unplug
remake-back, return:  stop -> unplug -> plug -> rebuild, from the image of the old disk
shelve:      stop -> snapshot             likewise; the devices stay attached until the server is offloaded
receive, hand-over, take-over             live migration: the domain keeps running; it has no devices
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from moorage.agent.jobs.keep_alive import KeepAlive
from moorage.agent.jobs.server_build import BuiltServer, JobLost, ServerBuilder, WorkFailed, failure_report
from moorage.agent.jobs.snapshots import Snapshots
from moorage.agent.model import DomainPowerState, PowerAction
from moorage.agent.virt.driver import VirtDriver
from moorage.jobs.contract import HandOverJob, RebuildJob, ServerJob, ServerRef, ShelveJob, StartJob

#: The code of os_acc's error for devices that were released, but could not be cleaned and are in quarantine.
CLEAN_FAILED = "accelerator.clean_failed"


class MoveJobs:
    """Every method may run again after a crash at any line."""

    def __init__(self, driver: VirtDriver, builder: ServerBuilder, snapshots: Snapshots) -> None:
        self._driver = driver
        self._builder = builder
        self._snapshots = snapshots

    def move_out(self, job: ShelveJob, keep_alive: KeepAlive) -> int:
        """Returns the number of released devices."""
        with self._started_again_after_failure(job, keep_alive):
            self._stop_and_upload(job, keep_alive)
            try:
                return self._builder.detach(job.server, keep_alive)
            except Exception as error:  # os_acc's `CleanFailed`, by its code: agents do not import os_acc
                if getattr(error, "code", None) != CLEAN_FAILED:
                    raise
                return 0  # the server does not have its devices any more, and could not start again here

    def shelve(self, job: ShelveJob, keep_alive: KeepAlive) -> None:
        with self._started_again_after_failure(job, keep_alive):
            self._stop_and_upload(job, keep_alive)

    def _stop_and_upload(self, job: ShelveJob, keep_alive: KeepAlive) -> None:
        self._power(job, PowerAction.STOP, keep_alive)
        self._builder.run_keeping_alive(lambda: self._snapshots.upload_disk(job), keep_alive)

    @contextmanager
    def _started_again_after_failure(self, job: ShelveJob, keep_alive: KeepAlive) -> Iterator[None]:
        """Leaves the server as it was if the body fails. Raises `WorkFailed` with `is_left` if that fails, too."""
        try:
            yield
        except JobLost:
            raise  # the worker that has the job now relies on the server being off
        except Exception as error:  # after any failure the server must run again; the error is raised again
            if job.start:
                self._start_again(job, error, keep_alive)
            raise

    def _start_again(self, job: ShelveJob, error: Exception, keep_alive: KeepAlive) -> None:
        """Attaches the devices again and starts the guest. Raises `WorkFailed` with `is_left` if that fails.

        The failed unplug, or an earlier attempt whose agent died, may have released devices. They may be another
        tenant's now, so the guest must not start with those of before.
        """
        try:
            self.move_back(job, keep_alive)
        except JobLost:
            raise
        except Exception as second:  # noqa: BLE001 - after any failure the server may be off; its owner must see that
            sentence, code = failure_report(error)
            failed = WorkFailed(
                f"{sentence}; and the server could not be started again: {failure_report(second)[0]}", code=code
            )
            failed.is_left = True
            raise failed from error

    def move_back(self, job: StartJob, keep_alive: KeepAlive) -> BuiltServer:
        built = self._builder.attach(job, keep_alive)
        if job.start:
            self._power(job, PowerAction.START, keep_alive)
        return built

    def move_in(self, job: StartJob, keep_alive: KeepAlive) -> BuiltServer:
        return self._builder.build(job, keep_alive, start=job.start)

    def remake(self, job: RebuildJob, keep_alive: KeepAlive) -> BuiltServer:
        try:
            return self._builder.rebuild(job, keep_alive)
        except JobLost:
            raise
        except (
            Exception
        ):  # after any failure the new flavor's devices are released; `remake_back` attaches the old ones
            self.stop_and_detach(job.server, keep_alive)
            raise

    def remake_back(self, job: RebuildJob, keep_alive: KeepAlive) -> BuiltServer:
        self.stop_and_detach(job.server, keep_alive)
        return self._builder.rebuild(job, keep_alive)

    def stop_and_detach(self, server: ServerRef, keep_alive: KeepAlive) -> int:
        """Returns the number of released devices.

        Stops the domain first: no guest may hold the next tenant's device.
        """
        if server.id in self._driver.domains():
            self._builder.run_keeping_alive(lambda: self._driver.power(server.id, PowerAction.STOP), keep_alive)
        return self._builder.detach(server, keep_alive)

    def receive(self, job: ServerJob) -> Mapping[str, str]:
        return self._driver.receive(self._builder.spec_of(job))

    def hand_over(self, job: HandOverJob, keep_alive: KeepAlive) -> None:
        self._builder.run_keeping_alive(lambda: self._driver.hand_over(job.server.id, job.target), keep_alive)

    def take_over(self, uuid: str) -> DomainPowerState:
        return self._driver.take_over(uuid)

    def _power(self, job: ServerJob, action: PowerAction, keep_alive: KeepAlive) -> None:
        self._builder.run_keeping_alive(partial(self._driver.power, job.server.id, action), keep_alive)
