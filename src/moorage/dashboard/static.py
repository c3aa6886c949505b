"""The files that pages load: style sheets, scripts, an icon. All are of the package; nothing comes from elsewhere."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from moorage.core.errors import NotFound
from moorage.wire.http import Response

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


class StaticFiles:
    """Read once. A page names the digest of each file, so that browsers keep it until it changes."""

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
