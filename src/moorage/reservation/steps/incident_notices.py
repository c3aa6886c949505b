"""Notifies the webhooks and mail addresses of a lease that its resources were lost, moved or restored.

Each notice is sent once and not repeated, because the lease's timeline keeps the incident. A target that failed is
skipped until the next round, so that it cannot delay others.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage

from sqlalchemy import Engine

from moorage.core.errors import MoorageError
from moorage.db.session import read
from moorage.reservation.model.before_end_actions import Allowed, EndAction, EndActionKind, domain_of, split_url
from moorage.reservation.model.leases import Lease
from moorage.reservation.steps.notification_steps import MailServer, lease_document, one_line, post_webhook
from moorage.reservation.store import capacity_store, lease_store
from moorage.reservation.store.capacity_store import Incident, IncidentKind

log = logging.getLogger(__name__)

_WORDS = {
    IncidentKind.LOST: "has lost resources",
    IncidentKind.MOVED: "was moved to other resources",
    IncidentKind.RESTORED: "has all of its resources again",
}


class IncidentNotices:
    """Checks each target against `allowed` again: the operator may have changed it since the lease was created."""

    def __init__(self, engine: Engine, allowed: Allowed, mail: MailServer | None) -> None:
        self._engine = engine
        self._allowed = allowed
        self._mail = mail
        self._failed_targets: set[str] = set()  #: in this round

    def begin_round(self) -> None:
        self._failed_targets.clear()

    @contextmanager
    def reporting(self, lease_id: str) -> Iterator[None]:
        """Reports the incidents that the body adds to the lease."""
        with read(self._engine) as connection:
            lease = lease_store.find_lease(connection, lease_id)
            has_targets = lease is not None and any(
                action.kind is not EndActionKind.SNAPSHOT for action in lease.before_end_actions
            )
            known = {each.id for each in capacity_store.incidents_of(connection, lease_id)} if has_targets else set()
        yield
        if not has_targets:
            return
        with read(self._engine) as connection:
            lease = lease_store.find_lease(connection, lease_id)
            new = [each for each in capacity_store.incidents_of(connection, lease_id) if each.id not in known]
        if lease is not None:
            for incident in new:
                self._notify_targets(lease, incident)

    def _notify_targets(self, lease: Lease, incident: Incident) -> None:
        for action in lease.before_end_actions:
            if action.target in self._failed_targets:
                continue
            try:
                self._allowed.check(action)
                self._send(action, lease, incident)
            except MoorageError as error:
                self._failed_targets.add(action.target)
                log.warning(
                    "a notice about a lease was not delivered",
                    extra={"lease_id": lease.id, "incident": incident.kind, "reason": error.message},
                )

    def _send(self, action: EndAction, lease: Lease, incident: Incident) -> None:
        if action.kind is EndActionKind.WEBHOOK and (parts := split_url(action.target)) is not None:
            post_webhook(*parts, lease_document(lease, incident.id, f"resources_{incident.kind}"), f'"{incident.id}"')
        elif action.kind is EndActionKind.EMAIL and self._mail is not None:
            self._mail.send(_message(lease, incident, self._mail.sender, action.target))


def _message(lease: Lease, incident: Incident, sender: str, to: str) -> EmailMessage:
    name, what = one_line(lease.name), _WORDS[incident.kind]
    message = EmailMessage()
    message["From"], message["To"] = sender, to
    message["Subject"] = f"Lease {name} {what}"
    message["Message-ID"] = f"<{incident.id}@{domain_of(sender)}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(
        f"The lease {name} ({lease.id}) of project {lease.project_id}\n"
        f"{what} at {incident.at:%Y-%m-%d %H:%M} UTC. Running servers were not changed.\n"
        "See its timeline for details.\n"
    )
    return message
