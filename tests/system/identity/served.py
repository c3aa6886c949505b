"""The application that `processes.cloud` serves: identity and images of one state directory."""

import os
from pathlib import Path

from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from moorage.identity import routes as identity_routes
from moorage.identity.authenticators import EmbeddedTokens, HttpBasic, TokensOrBasic
from moorage.identity.embedded import open_or_create
from moorage.identity.service import IdentityService
from moorage.images import routes as image_routes
from moorage.images.directory import ImageDirectory
from moorage.images.service import ImageService
from moorage.wire.app import Surroundings, WsgiApp, build, mount


def application() -> WsgiApp:
    state, clock, ids = Path(os.environ["SERVED_STATE"]), SystemClock(), RandomIds()
    identity = open_or_create(state, clock=clock, ids=ids, bcrypt_rounds=4)
    callers = TokensOrBasic(EmbeddedTokens(identity), HttpBasic(identity, clock))
    endpoints = {
        "identity": "/identity/v3",
        "image": os.environ.get("SERVED_IMAGE_URL") or "/image",
        "placement": "/placement",
    }
    images = ImageService(ImageDirectory(state / "images", clock=clock, ids=ids), clock=clock, ids=ids)
    return mount(
        {
            "/identity": build(
                identity_routes.API,
                IdentityService(identity, endpoints),
                Surroundings(callers, identity_routes.RULES, ids),
            ),
            "/image": build(image_routes.API, images, Surroundings(callers, image_routes.RULES, ids)),
        }
    )
