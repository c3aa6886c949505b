"""Checks the services' URLs (health, clock, certificate) and the message bus for hints."""

import re
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

from moorage.cli.doctor.finding import CheckFinding, broken, compare_clocks, fine, warning
from moorage.cli.services import urls_of
from moorage.cli.state import is_in_use
from moorage.config import Config
from moorage.core.clock import Clock
from moorage.core.errors import MoorageError
from moorage.jobs.wakeups import try_link
from moorage.wire.transports import SocketTransport, trusted_authorities

TIMEOUT_S = 5.0
#: Warn if a certificate expires sooner than this.
RENEW = timedelta(days=21)


def check_endpoints(config: Config, clock: Clock) -> Iterator[CheckFinding]:
    runs_here = is_in_use(config.state)
    for name, url in addresses(config).items():
        is_own = url.startswith((config.base_url, config.url))
        if is_own and not runs_here:
            yield warning(f"endpoint:{name}", "no plane runs with this configuration", url, "run `moorage up`")
        else:
            yield from _endpoint(name, url, clock, config.ca_file)
    hosts = {urlsplit(url).netloc: url for url in addresses(config).values() if url.startswith("https:")}
    for url in hosts.values():
        yield _certificate(url, clock.now(), config.ca_file)


def addresses(config: Config) -> dict[str, str]:
    """{service: URL}, with the URL of Keystone if users are there."""
    found = urls_of(config)
    if config.identity.mode == "keystone":
        found["identity"] = config.identity.keystone_url.rstrip("/")
    elif config.identity.mode == "none":
        found.pop("identity", None)
    return {name: url for name, url in found.items() if url}


def _endpoint(name: str, url: str, clock: Clock, ca_file: Path | None) -> Iterator[CheckFinding]:
    check_name = f"endpoint:{name}"
    before = clock.now()
    try:
        answer = SocketTransport(url, timeout_s=TIMEOUT_S, ca_file=ca_file).send("GET", _path(url), {})
    except MoorageError as error:
        yield broken(check_name, error.message, url, "start it, or correct its URL in [endpoints] or [identity]")
        return
    if answer.status >= 500:
        said = answer.body[:200].decode(errors="replace")
        yield broken(check_name, f"it answers {answer.status}: {said}", url, "see its log")
        return
    yield fine(check_name, f"it answers {answer.status}", url)
    if date := answer.headers.get("date"):
        yield compare_clocks(check_name, url, parsedate_to_datetime(date), before, clock.now(), precision_s=1.0)


def _path(url: str) -> str:
    """The path to request. Services have a health check; Keystone is asked for its version."""
    return "" if url.endswith("/v3") else "/healthcheck"


def _certificate(url: str, now: datetime, ca_file: Path | None) -> CheckFinding:
    parts = urlsplit(url)
    where = f"{parts.hostname}:{parts.port or 443}"
    try:
        with (
            socket.create_connection((parts.hostname or "", parts.port or 443), TIMEOUT_S) as raw,
            trusted_authorities(ca_file).wrap_socket(raw, server_hostname=parts.hostname) as sock,
        ):
            shown = sock.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        remedy = "renew it, or name its issuer in [endpoints] ca_file"
        return broken("certificate", f"not trusted: {error.verify_message}", where, remedy)
    except OSError as error:
        return broken(
            "certificate", f"no TLS connection: {error}", where, "check the server or proxy that terminates TLS"
        )
    ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(shown["notAfter"])), UTC)
    said = f"the certificate is valid until {ends:%Y-%m-%d}"
    return warning("certificate", said, where, "renew it") if ends - now < RENEW else fine("certificate", said, where)


def check_bus(config: Config) -> Iterator[CheckFinding]:
    url = config.plane.hints
    if not url:
        yield fine("bus", "not configured: hints stay within this process, other processes poll")
        return
    shown = re.sub(r":[^:@/]*@", ":***@", url)
    try:
        try_link(url)
    except MoorageError as error:
        remedy = "start it, or correct [plane] hints; until then hosts and workers poll"
        yield warning("bus", error.message, shown, remedy)
    else:
        yield fine("bus", "hints can be sent and received", shown)
