"""Builds the proxy of serial consoles, which runs beside the compute service."""

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from moorage.compute.api.policy_rules import OWN, RULES
from moorage.config import Config
from moorage.core.caller import Caller
from moorage.core.clock import is_real_time
from moorage.wiring.auth import membership_of
from moorage.wiring.components import Components

if TYPE_CHECKING:
    from moorage.compute.console_proxy import ConsoleListener
    from moorage.compute.servers.console_service import ConsoleService


def console_listener(parts: Components) -> "ConsoleListener | None":
    """The address of this process's proxy; None: there is none."""
    if not (parts.config.compute.consoles and parts.has_sockets and is_real_time(parts.clock)):
        return None
    from moorage.compute.console_proxy import ConsoleListener

    return ConsoleListener(parts.config.server.address, parts.config.compute.console_port)


def console_url(config: Config, listener: "ConsoleListener") -> str:
    """For people's clients."""
    return config.compute.console_url or _url_at(config, urlsplit(config.base_url).hostname or "", listener.port)


def _url_at(config: Config, host: str, port: int) -> str:
    scheme = "ws" if config.certificate is None else "wss"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"


def console_callers(parts: Components) -> Callable[[str, str], Caller | None]:
    """Looks up a user's present roles in a project; None if they allow no console."""
    membership = membership_of(parts)

    def caller_now(user_id: str, project_id: str) -> Caller | None:
        caller = membership.caller_now(user_id, project_id)
        return caller if caller is not None and RULES.allows(f"{OWN}os-remote-consoles", caller) else None

    return caller_now


def build_console_proxy(parts: Components, service: "ConsoleService", listener: "ConsoleListener") -> None:
    from moorage.compute.console_proxy import ConsoleProxy, ProxySettings

    config = parts.config
    settings = ProxySettings(
        origins=config.cors_origins | {_origin(config.base_url), _origin(config.url)},
        idle_s=config.compute.console_idle_s,
        host_url=lambda: config.compute.console_host_url or console_url(config, listener),
        certificate=config.certificate,
    )
    proxy = ConsoleProxy(service, settings, listener)
    parts.plane.built["consoles"] = proxy
    parts.plane.starts.append(proxy.start)
    parts.plane.drains.append(proxy.stop)
    parts.plane.reloads.append(proxy.reload)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
