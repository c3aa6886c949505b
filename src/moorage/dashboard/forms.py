"""What a browser sends: a form of names and values, from a page of ours."""

from collections.abc import Mapping
from urllib.parse import SplitResult, parse_qsl, urlsplit

from moorage.core.errors import Forbidden, Invalid, TooLarge, UnsupportedMedia
from moorage.dashboard.service import Dashboard
from moorage.wire.http import Request

#: A provider configuration is pasted whole; a reservation has a few hundred bytes.
MOST_BYTES = 1 << 20
_MOST_FIELDS = 500


class Form:
    """Fields by name, stripped. What was not sent is empty."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = pairs

    def text(self, name: str, default: str = "") -> str:
        return next((value.strip() for key, value in self._pairs if key == name), default)

    def every(self, name: str) -> list[str]:
        return [value.strip() for key, value in self._pairs if key == name]

    def raw(self, name: str) -> str:
        """Unstripped: passwords, files."""
        return next((value for key, value in self._pairs if key == name), "")

    def has(self, name: str) -> bool:
        return any(key == name for key, _ in self._pairs)

    def values(self) -> Mapping[str, str]:
        """For a page that shows what was typed; the first of each name."""
        return dict(reversed(self._pairs))


def read_form(request: Request[Dashboard]) -> Form:
    """Raises `Invalid`, `TooLarge`, `UnsupportedMedia`."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/x-www-form-urlencoded":
        raise UnsupportedMedia("this address reads forms (application/x-www-form-urlencoded) only")
    raw = request.stream.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise TooLarge(f"the form has more than {MOST_BYTES} bytes; shorten what was pasted into it")
    try:
        pairs = parse_qsl(
            raw.decode(), keep_blank_values=True, strict_parsing=bool(raw), errors="strict", max_num_fields=_MOST_FIELDS
        )
    except ValueError as error:  # UnicodeDecodeError is one
        raise Invalid("the form cannot be read; load the page again and repeat what you did") from error
    if any("\0" in name or "\0" in value for name, value in pairs):
        raise Invalid("the form has a NUL character in it; take it out")
    return Form(pairs)


def check_origin(request: Request[Dashboard]) -> None:
    """Raises `Forbidden` for what a page of another site sent. Browsers name the origin of each POST."""
    origin = split_address(request.headers.get("origin") or request.headers.get("referer", ""))
    ours = {request.headers.get("host", ""), urlsplit(request.base_url).netloc}
    if origin.scheme not in ("http", "https") or origin.netloc not in ours:
        raise Forbidden(
            f"this was sent from a page of {origin.netloc or 'an unknown place'}, not from the dashboard at "
            f"{request.base_url}; open it there and repeat what you did. Behind a proxy [server] public_url must name the "
            "address that people use",
            code="dashboard.origin",
        )


def split_address(text: str) -> SplitResult:
    """Of an address that a header names; all parts are empty where it is none, ``http://[``."""
    try:
        return urlsplit(text)
    except ValueError:
        return urlsplit("")
