"""The steps before the end of a lease (webhooks, mail and snapshots of servers), and notices of incidents.

`before_end_actions` defines which webhooks and mail addresses are allowed. A receiver may be notified twice if an
answer or a worker was lost. The `id` and ``Idempotency-Key`` of a webhook and the Message-ID of a mail are then the
same, so that it can ignore the second. Error texts contain no URL path and no password, because both may be secret.

`IncidentNotices` tells the same webhooks and addresses that resources of a lease were lost, moved or restored. Each
notice is sent once and not repeated, because the lease's timeline keeps the incident. A target that failed is skipped
until the next round, so that it cannot delay others.
"""

import http.client
import logging
import smtplib
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from email.message import EmailMessage
from hashlib import sha256
from urllib.parse import urlsplit

import orjson
from sqlalchemy import Engine

from moorage.compute.client.compute_client import ComputeClient
from moorage.compute.client.values import Server
from moorage.core.errors import MoorageError, Unavailable
from moorage.db.session import read
from moorage.images.base import OwnerView
from moorage.images.client import ImageLookup
from moorage.reservation.model.before_end_actions import Allowed, EndAction, EndActionKind, domain_of, split_url
from moorage.reservation.model.leases import EventType, Lease
from moorage.reservation.model.steps import (
    Actions,
    FindServers,
    FindServersOfHosts,
    Further,
    LeaveServer,
    SendMail,
    SendWebhook,
    SnapshotServer,
)
from moorage.reservation.store import capacity_store, lease_store
from moorage.reservation.store.capacity_store import Incident, IncidentKind

#: Timeout for connecting and for each answer of the server. It is short because other leases wait meanwhile.
TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class MailServer:
    """`security` is ``none``, ``starttls`` or ``tls``. Without a `user`, no login is sent."""

    host: str
    port: int
    security: str
    sender: str
    user: str = ""
    password: str = field(default="", repr=False)

    def send(self, message: EmailMessage) -> None:
        """Raises `Unavailable`."""
        try:
            smtp = self._connected()
            try:
                smtp.send_message(message)
                with suppress(OSError, smtplib.SMTPException):  # the message is already sent
                    smtp.quit()
            finally:
                smtp.close()
        except (OSError, smtplib.SMTPException) as error:
            said = getattr(error, "smtp_code", None) or getattr(error, "strerror", None) or ""
            reason = f"{type(error).__name__} {said}".strip()
            raise Unavailable(f"the mail server {self.host}:{self.port} did not accept the message: {reason}") from None

    def _connected(self) -> smtplib.SMTP:
        # Greet with the sender's domain: it needs no look-up and does not disclose this machine's name.
        name = domain_of(self.sender)
        if self.security == "tls":
            context = ssl.create_default_context()
            smtp: smtplib.SMTP = smtplib.SMTP_SSL(self.host, self.port, name, timeout=TIMEOUT_S, context=context)
        else:
            smtp = smtplib.SMTP(self.host, self.port, name, timeout=TIMEOUT_S)
        try:
            if self.security == "starttls":
                smtp.starttls(context=ssl.create_default_context())
            if self.user:
                smtp.login(self.user, self.password)
        except BaseException:  # the caller closes a connection only if it gets one
            smtp.close()
            raise
        return smtp


class NotificationSteps:
    """Checks each target against `allowed` again: the operator may have changed it since the lease was created."""

    def __init__(self, engine: Engine, allowed: Allowed, mail: MailServer | None) -> None:
        self._engine = engine
        self._allowed = allowed
        self._mail = mail
        self.actions: Actions = {SendWebhook: self._send_webhook, SendMail: self._send_mail}

    def _send_webhook(self, step: SendWebhook) -> None:
        self._allowed.check(EndAction(EndActionKind.WEBHOOK, step.target))
        lease, parts = self._lease(step.lease_id), split_url(step.target)
        if lease is None or parts is None:
            return
        origin, path = parts
        document = lease_document(lease, lease.before_end_occasion, EventType.BEFORE_END)
        post_webhook(origin, path, document, _key(lease, step.target))

    def _send_mail(self, step: SendMail) -> None:
        self._allowed.check(EndAction(EndActionKind.EMAIL, step.target))
        lease = self._lease(step.lease_id)
        if lease is not None and self._mail is not None:
            self._mail.send(_message(lease, self._mail.sender, step.target))

    def _lease(self, lease_id: str) -> Lease | None:
        with read(self._engine) as connection:
            return lease_store.find_lease(connection, lease_id)


def post_webhook(origin: str, path: str, body: bytes, key: str) -> None:
    """POSTs the body. Raises `Unavailable` for any other answer than success; does not follow redirects.

    Does not use the client that services use for each other, because that one logs whole URLs.
    """
    url = urlsplit(origin)
    connect = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = connect(url.hostname or "", url.port, timeout=TIMEOUT_S)
    try:
        headers = {"content-type": "application/json", "user-agent": "moorage", "idempotency-key": key}
        connection.request("POST", path, body, headers)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"{origin} does not answer: {type(error).__name__}") from None
    finally:
        connection.close()
    if not 200 <= status < 300:
        raise Unavailable(f"{origin} answered {status}")


def _key(lease: Lease, url: str) -> str:
    """The key in the format of draft-ietf-httpapi-idempotency-key-header. It differs for each URL of a lease."""
    return f'"{lease.before_end_occasion}.{sha256(url.encode()).hexdigest()[:16]}"'


def lease_document(lease: Lease, occasion: str, event_type: str) -> bytes:
    """The body of a webhook. `occasion` is the same for each repetition of a notice."""
    return orjson.dumps(
        {
            "id": occasion,
            "event_type": event_type,
            "lease": {
                "id": lease.id,
                "name": lease.name,
                "project_id": lease.project_id,
                "user_id": lease.user_id,
                "start_date": _date(lease.start_date),
                "end_date": _date(lease.end_date),
                "status": lease.status,
            },
        }
    )


def _date(moment: datetime) -> str:
    """The API's format: UTC, without a zone."""
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}"


def one_line(text: str) -> str:
    """`text` for a header of a mail, in which a line break would begin another header."""
    return "".join(each if each.isprintable() else " " for each in text)


def _message(lease: Lease, sender: str, to: str) -> EmailMessage:
    name = one_line(lease.name)
    message = EmailMessage()
    message["From"], message["To"] = sender, to
    message["Subject"] = f"Lease {name} ends at {lease.end_date:%Y-%m-%d %H:%M} UTC"
    message["Message-ID"] = f"<{lease.before_end_occasion}@{domain_of(sender)}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(
        f"The lease {name} ({lease.id}) of project {lease.project_id}\n"
        f"ends at {lease.end_date:%Y-%m-%d %H:%M} UTC. Its servers are deleted then.\n"
        "Prolong it, or save what you need.\n"
    )
    return message


#: Appended to the server's name to make the name of its image.
SUFFIX = "-before-end"

_LONGEST_NAME = 255


class SnapshotSteps:
    """Saves the servers of a reservation before its end, over compute's public API.

    One step finds the servers, then each server has a step of its own, so that a failed one is retried alone. A server
    in ERROR cannot be saved; that is recorded and does not count as a failure of the others' snapshots. Each
    image has properties that name its reservation and event, so that a retry does not create it again.
    """

    def __init__(self, engine: Engine, compute: ComputeClient, images: ImageLookup | None) -> None:
        """`images`: None without an image service; a lost answer may then result in two images."""
        self._engine = engine
        self._compute = compute
        self._images = images
        self.actions: Actions = {
            FindServers: self._find_servers,
            FindServersOfHosts: self._find_servers_of_hosts,
            SnapshotServer: self._snapshot,
            LeaveServer: lambda _step: None,
        }

    def _find_servers(self, step: FindServers) -> Further:
        return _snapshot_steps(step.reservation_id, self._compute.servers_of_flavor(step.reservation_id))

    def _find_servers_of_hosts(self, step: FindServersOfHosts) -> Further:
        lent = self._compute.aggregate_by_name(step.reservation_id)
        hosts = lent.hosts if lent is not None else ()
        return _snapshot_steps(
            step.reservation_id, [server for host in hosts for server in self._compute.servers_of_host(host)]
        )

    def _snapshot(self, step: SnapshotServer) -> Further | None:
        with read(self._engine) as connection:
            lease = lease_store.find_lease_of_reservation(connection, step.reservation_id)
        server = self._compute.server(step.server_id)
        if server is None or lease is None:
            return None  # the server or the lease was deleted
        purpose = {"reservation_id": step.reservation_id, "before_end": lease.before_end_occasion}
        # Look in the server's own project only: any project can give its images these properties.
        view = OwnerView(server.project_id)
        if self._images is not None and self._images.has_image(view, {"instance_uuid": step.server_id, **purpose}):
            return None
        if server.status == "ERROR":
            return Further((LeaveServer(step.reservation_id, step.server_id, "the server is in ERROR"),))
        image_name = server.name[: _LONGEST_NAME - len(SUFFIX)] + SUFFIX
        self._compute.create_image(step.server_id, image_name, purpose)
        return None


def _snapshot_steps(reservation_id: str, servers: Iterable[Server]) -> Further:
    return Further(tuple(SnapshotServer(reservation_id, each) for each in sorted(server.id for server in servers)))


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
            self._mail.send(_incident_message(lease, incident, self._mail.sender, action.target))


def _incident_message(lease: Lease, incident: Incident, sender: str, to: str) -> EmailMessage:
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
