"""A plane that a browser can open, and the checks for every page."""

import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

from axe_playwright_python.base import AXE_SCRIPT, AxeResults

from moorage.dashboard.cookies import SESSION
from moorage.identity.client import PasswordTokens
from moorage.wire.client import ServiceClient
from moorage.wire.transports import SocketTransport
from tests.system.planes import VirtualPlane, embedded_credentials

#: The Web Content Accessibility Guidelines up to AA, and the rules that axe calls best practice. axe returns all nodes
#: of a violation, but only one node of each rule that passes, which takes half of the time.
RULES = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "resultTypes": ["violations"],
}

#: The variable that names a directory for the pictures, ``docs/screenshots``; without it they are deleted.
KEPT = "MOORAGE_SCREENSHOTS"

#: The minimum size in bytes. The picture of a page that failed to render has one colour, and is far smaller.
LEAST_BYTES = 6_000


@dataclass
class Lab:
    plane: VirtualPlane
    url: str
    tokens: dict[str, PasswordTokens] = field(default_factory=dict)  #: by user

    def client(self, user: str, service_type: str) -> ServiceClient:
        """A client with the user's own credentials, for requests beside the pages."""
        transport = SocketTransport(f"{self.url}/{service_type}")
        return ServiceClient(transport, service_type=service_type, credentials=self.tokens_of(user))

    def tokens_of(self, user: str) -> PasswordTokens:
        if user not in self.tokens:
            transport = SocketTransport(f"{self.url}/identity")
            self.tokens[user] = embedded_credentials(transport, self.plane.state, self.plane.clock, user)
        return self.tokens[user]

    def cookies_of(self, user: str) -> list[dict[str, object]]:
        """The cookies of a user's session, as signing in creates them; the sign-in page has its own tests."""
        return [
            {"name": SESSION, "value": self.tokens_of(user).current_token().text, "domain": "127.0.0.1", "path": "/ui", "httpOnly": True,
             "sameSite": "Strict"}
        ]  # fmt: skip


class Looker:
    def __init__(self, directory: Path) -> None:
        self._directory = Path(os.environ.get(KEPT) or directory)

    def __call__(self, tab, name: str, *, themes: tuple[str, ...] = ("light", "dark"), full: bool = False) -> None:
        """Writes ``NAME-light.png`` and ``NAME-dark.png``; fails for violations that axe finds and for errors of
        scripts.
        """
        for theme in themes:
            tab.emulate_media(color_scheme=theme, reduced_motion="reduce")
            path = self._directory / f"{name}-{theme}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            tab.screenshot(path=path, full_page=full, animations="disabled", caret="hide")
            width, height = size_of(path)
            assert width == tab.viewport_size["width"]
            assert height >= 300
            assert path.stat().st_size > LEAST_BYTES, f"{path} looks empty"
            found = violations(tab)
            assert not found.violations_count, f"{name}, {theme}:\n{found.generate_report()}"
        assert not tab.troubles, f"{name}: {tab.troubles}"


def violations(tab) -> AxeResults:
    if not tab.evaluate("'axe' in window"):  # half a megabyte, loaded once for each page
        tab.evaluate(AXE_SCRIPT)
    return AxeResults(tab.evaluate("rules => axe.run(rules).then(({violations}) => ({violations}))", RULES))


def size_of(png: Path) -> tuple[int, int]:
    """(width, height)"""
    head = png.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:24])
