"""Settings of the reservation service from [enforcement] (limits, external approval) and [before_end] (notices)."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from moorage.config import Config, comma_separated
from moorage.core.errors import StartError

if TYPE_CHECKING:
    from moorage.reservation.booking.enforcement import Rules
    from moorage.reservation.booking.external_enforcement import ExternalService
    from moorage.reservation.steps.notification_steps import MailServer

#: Blazar's filters.
_FILTERS = {"MaxLeaseDurationFilter", "ExternalServiceFilter"}


def _amounts(config: Config, name: str, option: str) -> dict[str, int]:
    """Raises `StartError`."""
    amounts = {}
    for text in comma_separated(option):
        key, _, number = (word.strip() for word in text.partition("="))
        if not key or not number.isdecimal():
            raise StartError(
                f"{config.source}: [enforcement] {name} has {text!r}; use CLASS=AMOUNT, for example VCPU=100"
            )
        amounts[key] = int(number)
    return amounts


def enforcement_settings(config: Config) -> "tuple[Rules, ExternalService | None]":
    """The limits for leases, and the external service that must approve them. Raises `StartError`."""
    from moorage.reservation.booking.enforcement import Rules
    from moorage.reservation.booking.external_enforcement import ExternalService
    from moorage.reservation.model.limits import Limits

    options = config.enforcement
    filters = set(comma_separated(options.enabled_filters))
    if unknown := sorted(filters - _FILTERS):
        raise StartError(
            f"{config.source}: [enforcement] enabled_filters has {unknown[0]}; there are {', '.join(sorted(_FILTERS))}"
        )
    if options.limit_period_days < 1:
        raise StartError(f"{config.source}: [enforcement] limit_period_days must be at least 1")
    rules = Rules(
        max_duration_s=options.max_lease_duration if "MaxLeaseDurationFilter" in filters else -1,
        exempt=frozenset(comma_separated(options.max_lease_duration_exempt_project_ids)),
        limits=Limits(_amounts(config, "limits", options.limits), _amounts(config, "limit_hours", options.limit_hours)),
        user_limits=Limits(
            _amounts(config, "user_limits", options.user_limits),
            _amounts(config, "user_limit_hours", options.user_limit_hours),
        ),
        period=timedelta(days=options.limit_period_days),
        max_holds=config.reservation.max_holds,
        hold_minutes_per_day=config.reservation.hold_minutes_per_day,
    )
    if "ExternalServiceFilter" not in filters:
        return rules, None
    urls = {
        "base": options.external_service_base_endpoint,
        "check_create": options.external_service_check_create_endpoint,
        "check_update": options.external_service_check_update_endpoint,
        "on_end": options.external_service_on_end_endpoint,
    }
    for name, url in urls.items():
        if url and not (url.startswith(("http://", "https://")) and urlsplit(url).netloc):
            raise StartError(
                f"{config.source}: [enforcement] external_service_{name}_endpoint is not an http(s) URL: {url}"
            )
    if not any(urls.values()):
        raise StartError(f"{config.source}: [enforcement] ExternalServiceFilter is enabled and has no endpoint")
    external = ExternalService(
        urls["base"],
        check_create=urls["check_create"],
        check_update=urls["check_update"],
        on_end=urls["on_end"],
        token=options.external_service_token,
        region=config.plane.region,
        auth_url=config.identity.keystone_url or config.endpoints.identity or f"{config.base_url}/identity",
        ca_file=config.ca_file,
    )
    return rules, external


def before_end_settings(config: Config) -> dict[str, Any]:
    """Fields of `ReservationSettings`. Raises `StartError`."""
    from moorage.reservation.model.before_end_actions import Allowed, split_url

    options, where = config.before_end, f"{config.source}: [before_end]"
    origins = set()
    for text in comma_separated(options.webhook_origins):
        parts = split_url(text)
        if parts is None or parts[1] != "/":
            raise StartError(f"{where} webhook_origins has {text}; use https://host or https://host:port")
        origins.add(parts[0])
    mail = _mail(config, where)
    domains = frozenset(word.lower() for word in comma_separated(options.mail_domains))
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
        raise StartError(
            f"{where} smtp_server is {options.smtp_server}; use host:port, for example mail.example.org:587"
        )
    if domain_of(options.mail_sender) is None:
        raise StartError(f"{where} mail_sender must be an email address if smtp_server is set")
    if options.smtp_user and options.smtp_security == "none":
        raise StartError(
            f"{where} smtp_user needs smtp_security starttls or tls: the password would be sent unencrypted"
        )
    sender, security = options.mail_sender, options.smtp_security
    return MailServer(host.strip("[]"), int(port), security, sender, options.smtp_user, options.smtp_password)
