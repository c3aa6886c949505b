"""The application that `processes.cloud` serves: identity and images of one state directory."""

import os
from pathlib import Path

from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from moorage.wire.app import WsgiApp
from tests.plane import InProcessPlane


def application() -> WsgiApp:
    """Callers authenticate by a token, or by name and password in each request."""
    elsewhere = os.environ.get("SERVED_IMAGE_URL", "")
    return InProcessPlane(
        Path(os.environ["SERVED_STATE"]),
        "identity" if elsewhere else "identity,image",
        clock=SystemClock(),
        ids=RandomIds(),
        authenticator=None,
        identity={"mode": "http_basic"},
        endpoints={"image": elsewhere},
    ).plane.app
