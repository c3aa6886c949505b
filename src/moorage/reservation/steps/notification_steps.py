"""The steps that tell somebody that a lease will end: webhooks and mail. What may be told to whom is `before_end_actions`.

Whoever is told may be told twice, where an answer or a worker was lost: `id` and ``Idempotency-Key`` of a webhook and
the Message-ID of a mail are the same then, so that they can pass by the second. What is said of failures names no path of a URL and no password: both may be secrets.
"""

import http.client
import smtplib
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from email.message import EmailMessage
from hashlib import sha256
from urllib.parse import urlsplit

import orjson
from sqlalchemy import Engine

from moorage.core import blocking_hook
from moorage.core.errors import Unavailable
from moorage.db.transactions import read
from moorage.reservation.model.before_end_actions import Allowed, EndAction, EndActionKind, domain_of, split_url
from moorage.reservation.model.leases import EventType, Lease
from moorage.reservation.model.steps import Actions, Step, StepKind
from moorage.reservation.store import lease_store

#: Of a connection, and of each answer of the other side. Other leases wait meanwhile.
TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class MailServer:
    """`security` is ``none``, ``starttls`` or ``tls``; without a `user` nobody logs in."""

    host: str
    port: int
    security: str
    sender: str
    user: str = ""
    password: str = field(default="", repr=False)

    def send(self, message: EmailMessage) -> None:
        """Raises `Unavailable`."""
        blocking_hook.about_to_block()
        try:
            smtp = self._connected()
            try:
                smtp.send_message(message)
                with suppress(OSError, smtplib.SMTPException):  # it is sent, whatever the farewell
                    smtp.quit()
            finally:
                smtp.close()
        except (OSError, smtplib.SMTPException) as error:
            said = getattr(error, "smtp_code", None) or getattr(error, "strerror", None) or ""
            reason = f"{type(error).__name__} {said}".strip()
            raise Unavailable(f"the mail server {self.host}:{self.port} did not take the message: {reason}") from None

    def _connected(self) -> smtplib.SMTP:
        # Its own name is the sender's domain: no look-up of this machine's, which others need not know.
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
        except BaseException:
            smtp.close()
            raise
        return smtp


class NoticeSteps:
    """`actions` are what it can do. `allowed` is asked again: the operator may have changed it since."""

    def __init__(self, engine: Engine, allowed: Allowed, mail: MailServer | None) -> None:
        self._engine = engine
        self._allowed = allowed
        self._mail = mail
        self.actions: Actions = {StepKind.SEND_WEBHOOK: self._send_webhook, StepKind.SEND_MAIL: self._send_mail}

    def _send_webhook(self, step: Step) -> None:
        self._allowed.check(EndAction(EndActionKind.WEBHOOK, step.target))
        lease, parts = self._lease(step), split_url(step.target)
        if lease is None or parts is None:
            return
        origin, path = parts
        status = _post(origin, path, _document(lease), _key(lease, step.target))
        if not 200 <= status < 300:
            raise Unavailable(f"{origin} answered {status}")

    def _send_mail(self, step: Step) -> None:
        self._allowed.check(EndAction(EndActionKind.EMAIL, step.target))
        lease = self._lease(step)
        if lease is not None and self._mail is not None:
            self._mail.send(_message(lease, self._mail.sender, step.target))

    def _lease(self, step: Step) -> Lease | None:
        with read(self._engine) as connection:
            return lease_store.find_lease(connection, step.lease_id)


def _post(origin: str, path: str, body: bytes, key: str) -> int:
    """The status that is answered; the rest of the answer is not read, and no redirect is followed.

    Not the client that services have for each other: that one writes whole URLs into the log.
    """
    url = urlsplit(origin)
    connect = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = connect(url.hostname or "", url.port, timeout=TIMEOUT_S)
    blocking_hook.about_to_block()
    try:
        headers = {"content-type": "application/json", "user-agent": "moorage", "idempotency-key": key}
        connection.request("POST", path, body, headers)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"{origin} does not answer: {type(error).__name__}") from None
    finally:
        connection.close()


def _key(lease: Lease, url: str) -> str:
    """A string as draft-ietf-httpapi-idempotency-key-header wants it. Of each URL its own: one service may have two."""
    return f'"{lease.before_end_occasion}.{sha256(url.encode()).hexdigest()[:16]}"'


def _document(lease: Lease) -> bytes:
    return orjson.dumps(
        {
            "id": lease.before_end_occasion,
            "event_type": EventType.BEFORE_END,
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
    """As the API shows it: UTC, without a zone."""
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}"


def _message(lease: Lease, sender: str, to: str) -> EmailMessage:
    name = "".join(each if each.isprintable() else " " for each in lease.name)  # no line of its own in the headers
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
