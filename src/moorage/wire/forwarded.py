"""What a proxy says of the request that it passes on: by which scheme and host the client asked, and from where.

Only proxies that the operator names are believed (`TrustedProxies`); anybody else could have written the same headers, and links,
cookies and the origin that a form must come from would follow them. Of several values the last one counts: the proxy in
front wrote it, what stands before it may be the client's.

Source: RFC 7239 (``Forwarded``); ``X-Forwarded-Proto`` and ``X-Forwarded-Host`` have none.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

#: What tells that a request came through a proxy, whichever. Nobody else has a reason to send them.
FORWARDING_HEADERS = frozenset(
    {"HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_PROTO", "HTTP_X_FORWARDED_HOST"}
)

#: In the environment of a request that never was on a wire. Without the prefix ``HTTP_`` no client can set it.
IN_PROCESS_KEY = "moorage.in_process"

_HOST = re.compile(r"(?:[0-9A-Za-z._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?\Z")
_PAIR = re.compile(r'\s*([!#$%&\'*+\-.^_`|~0-9A-Za-z]+)=("(?:[^"\\]|\\.)*"|[^\s";,]*)\s*\Z')
_SCHEMES = ("http", "https")


class TrustedProxies:
    """The proxies that are believed, by their addresses."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        """`networks`: ``10.0.0.0/8``, ``::1``. Raises `ValueError`."""
        self._networks: list[IPv4Network | IPv6Network] = [ip_network(text) for text in networks]
        self._believed = lru_cache(maxsize=256)(self._looked_up)

    def trusts(self, environ: Mapping[str, Any]) -> bool:
        """Whether the request's other end is one of them."""
        return bool(self._networks) and self._believed(str(environ.get("REMOTE_ADDR") or ""))

    def client_address(self, environ: Mapping[str, Any]) -> str:
        """The client's, of IPv6 the network that one machine may have all of (/64).

        "" where it is nobody's in particular: this machine's, whose proxies may not say for whom they ask, and this process's.
        """
        address = str(environ.get("REMOTE_ADDR") or "")
        if environ.get(IN_PROCESS_KEY) or self.trusts(environ):
            address = _forwarded_client(environ) or ("" if environ.get(IN_PROCESS_KEY) else address)
        return _client_network(address)

    def full_address(self, environ: Mapping[str, Any]) -> str:
        """The client's, for people to read: what a believed proxy says, where that is an address; else the other end's."""
        address = str(environ.get("REMOTE_ADDR") or "")
        if not (environ.get(IN_PROCESS_KEY) or self.trusts(environ)):
            return address
        said = _forwarded_client(environ) or ""
        return said if _is_address(said) else address

    def _looked_up(self, address: str) -> bool:
        try:
            found = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(found, "ipv4_mapped", None)
        return any((mapped or found) in network for network in self._networks)


def scheme_and_host(environ: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """As the last proxy has them; None where it says nothing, or nothing that can be one."""
    scheme, host = _last_value(environ, "HTTP_X_FORWARDED_PROTO"), _last_value(environ, "HTTP_X_FORWARDED_HOST")
    if "HTTP_FORWARDED" in environ:
        said = _last_forwarded_element(environ["HTTP_FORWARDED"])
        scheme, host = said.get("proto", scheme), said.get("host", host)
    scheme = scheme.lower() if scheme else None
    return scheme if scheme in _SCHEMES else None, host if host and _HOST.match(host) else None


def _forwarded_client(environ: Mapping[str, Any]) -> str | None:
    """As the last proxy has it, with or without a port."""
    text = _last_value(environ, "HTTP_X_FORWARDED_FOR")
    if "HTTP_FORWARDED" in environ:
        text = _last_forwarded_element(environ["HTTP_FORWARDED"]).get("for", text)
    if text and (found := _ADDRESS.match(text)):
        return found.group(1) or found.group(2)
    return text


_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+))(?::[0-9]{1,5})?\Z")


@lru_cache(maxsize=1024)
def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=1024)
def _client_network(address: str) -> str:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    found = getattr(found, "ipv4_mapped", None) or found
    if found.is_loopback:
        return ""
    return str(found) if found.version == 4 else str(ip_network((found, 64), strict=False))


def _last_value(environ: Mapping[str, Any], name: str) -> str | None:
    value: str | None = environ.get(name)
    return None if value is None else value.rpartition(",")[2].strip()


def _last_forwarded_element(value: str) -> dict[str, str]:
    """The parameters of the last element of a ``Forwarded`` header, by lower-case name; none where it cannot be read."""
    pairs = {}
    for part in _split_unquoted(_split_unquoted(value, ",")[-1], ";"):
        found = _PAIR.match(part)
        if found is None:
            return {}
        name, text = found.groups()
        pairs[name.lower()] = re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text
    return pairs


def _split_unquoted(text: str, separator: str) -> list[str]:
    """At the separators outside of quotes; one part at least."""
    parts, is_quoted, is_escaped, begin = [], False, False, 0
    for at, character in enumerate(text):
        if is_escaped:
            is_escaped = False
        elif character == '"':
            is_quoted = not is_quoted
        elif is_quoted:
            is_escaped = character == "\\"
        elif character == separator:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]
