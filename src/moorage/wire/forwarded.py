"""Reads forwarding headers of a proxy: the scheme and host that the client used, and the client's address.

Headers count only if they come from a proxy that the operator configured (`TrustedProxies`). Any client can send the
same headers, and links, cookies and the origin check of forms depend on them. Of several values the last one counts:
the proxy in front wrote it, while earlier ones may come from the client.

Source: RFC 7239 (``Forwarded``); ``X-Forwarded-Proto`` and ``X-Forwarded-Host`` have none.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

#: A request with one of these headers came through some proxy; clients have no reason to send them.
FORWARDING_HEADERS = frozenset(
    {"HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_PROTO", "HTTP_X_FORWARDED_HOST"}
)

#: Key of the WSGI environment that marks in-process requests. No client can set it, as it lacks the prefix ``HTTP_``.
IN_PROCESS_KEY = "moorage.in_process"

_HOST = re.compile(r"(?:[0-9A-Za-z._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?\Z")
_PAIR = re.compile(r'\s*([!#$%&\'*+\-.^_`|~0-9A-Za-z]+)=("(?:[^"\\]|\\.)*"|[^\s";,]*)\s*\Z')
_SCHEMES = ("http", "https")


class TrustedProxies:
    """The proxies whose forwarding headers count, by address."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        """`networks`: ``10.0.0.0/8``, ``::1``. Raises `ValueError`."""
        self._networks: list[IPv4Network | IPv6Network] = [ip_network(text) for text in networks]
        self._believed = lru_cache(maxsize=256)(self._looked_up)

    def trusts(self, environ: Mapping[str, object]) -> bool:
        """Whether the request comes directly from a trusted proxy."""
        return bool(self._networks) and self._believed(str(environ.get("REMOTE_ADDR") or ""))

    def client_address(self, environ: Mapping[str, object]) -> str:
        """The client's address; for IPv6 its /64 network, since one machine may own all of it.

        "" for requests from this process or this machine, because a local proxy may hide the real client.
        """
        address = str(environ.get("REMOTE_ADDR") or "")
        if environ.get(IN_PROCESS_KEY) or self.trusts(environ):
            address = _forwarded_client(environ) or ("" if environ.get(IN_PROCESS_KEY) else address)
        return _client_network(address)

    def full_address(self, environ: Mapping[str, object]) -> str:
        """The client's address for logs: from a trusted proxy's headers if valid, otherwise that of the connection."""
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


def scheme_and_host(environ: Mapping[str, object]) -> tuple[str | None, str | None]:
    """(scheme, host) from the last proxy's headers; None for a value that is missing or invalid."""
    scheme, host = _last_value(environ, "HTTP_X_FORWARDED_PROTO"), _last_value(environ, "HTTP_X_FORWARDED_HOST")
    if "HTTP_FORWARDED" in environ:
        said = _last_forwarded_element(str(environ["HTTP_FORWARDED"]))
        scheme, host = said.get("proto", scheme), said.get("host", host)
    scheme = scheme.lower() if scheme else None
    return scheme if scheme in _SCHEMES else None, host if host and _HOST.match(host) else None


def _forwarded_client(environ: Mapping[str, object]) -> str | None:
    """The client's address from the last proxy's headers, without a port if it can be parsed."""
    text = _last_value(environ, "HTTP_X_FORWARDED_FOR")
    if "HTTP_FORWARDED" in environ:
        text = _last_forwarded_element(str(environ["HTTP_FORWARDED"])).get("for", text)
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


def _last_value(environ: Mapping[str, object], name: str) -> str | None:
    value = environ.get(name)
    return None if value is None else str(value).rpartition(",")[2].strip()


def _last_forwarded_element(value: str) -> dict[str, str]:
    """The parameters of the last element of a ``Forwarded`` header, by lower-case name; empty if it is malformed."""
    pairs = {}
    for part in _split_unquoted(_split_unquoted(value, ",")[-1], ";"):
        found = _PAIR.match(part)
        if found is None:
            return {}
        name, text = found.groups()
        pairs[name.lower()] = re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text
    return pairs


def _split_unquoted(text: str, separator: str) -> list[str]:
    """`text` split at separators outside of quotes; at least one part."""
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
