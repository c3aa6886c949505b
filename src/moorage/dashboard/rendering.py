"""Renders templates and serves static files. Every value in a template is escaped; a missing value is an error."""

import hashlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from moorage.core.errors import NotFound
from moorage.dashboard.views.units import span_text
from moorage.wire.http import Response


class Templates:
    def __init__(self, directory: Path, digests: Mapping[str, str]) -> None:
        """`digests`: {name of a static file: digest of its contents}."""
        self._environment = Environment(
            loader=FileSystemLoader(directory),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.globals["digests"] = digests
        self._environment.filters.update(FILTERS)

    def render(self, name: str, values: Mapping[str, object]) -> bytes:
        return self._environment.get_template(name).render(values).encode()


def clock_text(moment: datetime) -> str:
    """``2026-12-01 08:00`` in UTC, the format that forms and the API also accept."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def iso_text(moment: datetime) -> str:
    """The format of ``<time datetime>``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def when_element(moment: datetime | str, *, seconds: bool = False) -> Markup:
    """``<time>`` with the time in UTC; the script `times.js` shows it in the browser's time zone, with UTC beside it.

    `moment` may be a service's text, which is UTC without an offset; a text that is not a time is shown as it is.
    """
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            return Markup("{}").format(moment)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    shown = moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")
    return Markup('<time datetime="{}">{}</time>').format(iso_text(moment), shown)


def count_text(number: float) -> str:
    """``10,000``"""
    return f"{number:,}"


FILTERS: Mapping[str, Callable[..., str]] = {
    "clock": clock_text,
    "iso": iso_text,
    "when": when_element,
    "span": span_text,
    "count": count_text,
}


_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


class StaticFiles:
    """The static files, read once. Pages put each file's digest into its URL, so browsers cache it until it changes."""

    def __init__(self, directory: Path) -> None:
        self._files = {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.suffix in _TYPES}
        self.digests: Mapping[str, str] = {
            name: hashlib.sha256(content).hexdigest()[:12] for name, content in self._files.items()
        }

    def response(self, name: str, if_none_match: str | None) -> Response:
        """Raises `NotFound`."""
        if name not in self._files:
            raise NotFound(f"the dashboard has no file {name}")
        tag = f'"{self.digests[name]}"'
        headers = {"etag": tag, "cache-control": "public, max-age=31536000, immutable"}
        if if_none_match == tag:
            return Response(304, headers=headers)
        return Response(200, self._files[name], headers, content_type=_TYPES[Path(name).suffix])
