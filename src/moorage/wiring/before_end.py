"""What the section [before_end] says: where leases may send notices before their end, and how mail is sent."""

from typing import TYPE_CHECKING, Any

from moorage.config import Config
from moorage.core.errors import StartError

if TYPE_CHECKING:
    from moorage.reservation.steps.notification_steps import MailServer


def before_end(config: Config) -> dict[str, Any]:
    """Fields of `ReservationSettings`. Raises `StartError`."""
    from moorage.reservation.model.before_end_actions import Allowed, split_url

    options, where = config.before_end, f"{config.source}: [before_end]"
    origins = set()
    for text in _words(options.webhook_origins):
        parts = split_url(text)
        if parts is None or parts[1] != "/":
            raise StartError(f"{where} webhook_origins has {text}; write https://host or https://host:port")
        origins.add(parts[0])
    mail = _mail(config, where)
    domains = frozenset(word.lower() for word in _words(options.mail_domains))
    return {
        "allowed": Allowed(frozenset(origins), mail is not None, domains),
        "mail": mail,
        "before_end_of_hosts": "snapshot" if options.lent_hosts == "snapshot" else "",
    }


def _mail(config: Config, where: str) -> "MailServer | None":
    from moorage.reservation.model.before_end_actions import domain_of
    from moorage.reservation.steps.notification_steps import MailServer

    options = config.before_end
    if not options.smtp_server:
        return None
    host, _, port = options.smtp_server.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise StartError(f"{where} smtp_server is {options.smtp_server}; write host:port, mail.example.org:587")
    if domain_of(options.mail_sender) is None:
        raise StartError(f"{where} mail_sender must be an address where there is an smtp_server")
    if options.smtp_user and options.smtp_security == "none":
        raise StartError(f"{where} smtp_user needs smtp_security starttls or tls: the password would be sent in clear")
    sender, security = options.mail_sender, options.smtp_security
    return MailServer(host.strip("[]"), int(port), security, sender, options.smtp_user, options.smtp_password)


def _words(text: str) -> list[str]:
    return [word for part in text.split(",") if (word := part.strip())]
