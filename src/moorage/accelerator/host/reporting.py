"""Sends a host's reports to the central service, each with its position, so that a late one changes nothing there.

Not here: when to report (`agent`), and the decision which report is old (`moorage.accelerator.service.report_order`).
"""

from collections.abc import Callable

from moorage.accelerator.client import AcceleratorClient
from moorage.accelerator.model.attach_state import AttachState
from moorage.accelerator.model.naming import NameScheme
from moorage.accelerator.model.reports import (
    ReportAnswer,
    ReportPosition,
    Superseded,
    attachment_reports,
    device_reports,
)

#: Reports that are made again at once because a job ended meanwhile; the next one waits.
MAX_ATTEMPTS = 4


class ReportSender:
    """The reports of one agent, from its start to its end. Used by one thread at a time, except `superseded`."""

    def __init__(self, host: str, names: NameScheme) -> None:
        self._host = host
        self._names = names
        self._next: ReportPosition | None = None
        #: Why the service no longer accepts this agent's reports; None: it does, as far as this agent knows.
        self.superseded: str | None = None

    def send(self, service: AcceleratorClient, read_state: Callable[[], AttachState]) -> bool:
        """Reports attachments and devices. Returns False if jobs ended during each attempt: report again soon.

        Raises `Superseded` if another agent of the host started later.
        """
        try:
            return any(self._send_once(service, read_state) for _ in range(MAX_ATTEMPTS))
        except Superseded as error:
            self.superseded = error.message
            raise

    def _send_once(self, service: AcceleratorClient, read_state: Callable[[], AttachState]) -> bool:
        """Returns whether both reports were stored."""
        position = self._next or service.ask_for_epoch(self._host)
        held = read_state()  # after the position was fetched, so that the service has nothing newer than this state
        # Attachments first: users look for them as soon as their server is active.
        answer = service.report_attachments(self._host, attachment_reports(held), position)
        if self._is_stored(answer):
            answer = service.report_devices(self._host, device_reports(held, self._names), self._next)
        return self._is_stored(answer)

    def _is_stored(self, answer: ReportAnswer | None) -> bool:
        if answer is None:
            return True
        self._next, self.superseded = answer.next, None
        return answer.is_stored
