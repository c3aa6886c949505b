"""Parses forms sent by browsers, and checks that they come from a page of the dashboard."""

from collections.abc import Mapping
from urllib.parse import SplitResult, parse_qsl, urlsplit

from moorage.core.errors import Forbidden, Invalid, TooLarge, UnsupportedMedia
from moorage.dashboard.service import Dashboard
from moorage.wire.http import Request

#: Large enough for a pasted provider configuration; a lease form has a few hundred bytes.
MAX_FORM_BYTES = 1 << 20
_MAX_FIELDS = 500


class Form:
    """Fields by name, stripped of whitespace. A missing field is empty."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = pairs

    def text(self, name: str, default: str = "") -> str:
        return next((value.strip() for key, value in self._pairs if key == name), default)

    def every(self, name: str) -> list[str]:
        return [value.strip() for key, value in self._pairs if key == name]

    def raw(self, name: str) -> str:
        """The value with its whitespace, for passwords and files."""
        return next((value for key, value in self._pairs if key == name), "")

    def has(self, name: str) -> bool:
        return any(key == name for key, _ in self._pairs)

    def values(self) -> Mapping[str, str]:
        """{name: first value}, to show the form again with what the user typed."""
        return dict(reversed(self._pairs))


def read_form(request: Request[Dashboard]) -> Form:
    """Raises `Invalid`, `TooLarge`, `UnsupportedMedia`."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/x-www-form-urlencoded":
        raise UnsupportedMedia("this address accepts only forms (application/x-www-form-urlencoded)")
    raw = request.stream.read(MAX_FORM_BYTES + 1)
    if len(raw) > MAX_FORM_BYTES:
        raise TooLarge(f"the form has more than {MAX_FORM_BYTES} bytes; paste less text")
    try:
        pairs = parse_qsl(
            raw.decode(), keep_blank_values=True, strict_parsing=bool(raw), errors="strict", max_num_fields=_MAX_FIELDS
        )
    except ValueError as error:  # includes UnicodeDecodeError
        raise Invalid("the form cannot be read; reload the page and try again") from error
    if any("\0" in name or "\0" in value for name, value in pairs):
        raise Invalid("the form contains a NUL character; remove it")
    return Form(pairs)


def check_origin(request: Request[Dashboard]) -> None:
    """Raises `Forbidden` for a form from another site's page. Browsers send the origin with every POST."""
    origin = split_address(request.headers.get("origin") or request.headers.get("referer", ""))
    ours = {request.headers.get("host", ""), urlsplit(request.base_url).netloc}
    if origin.scheme not in ("http", "https") or origin.netloc not in ours:
        raise Forbidden(
            f"this form was sent from a page of {origin.netloc or 'an unknown place'}, not from the dashboard at "
            f"{request.base_url}; open the dashboard there and try again. Behind a proxy, [server] public_url must be "
            "the address that people use",
            code="dashboard.origin",
        )


def split_address(text: str) -> SplitResult:
    """The parts of a URL from a header; all parts are empty if the URL is malformed, such as ``http://[``."""
    try:
        return urlsplit(text)
    except ValueError:
        return urlsplit("")
