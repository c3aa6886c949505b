"""The server configurations that the suite needs.

Upstream's fixtures switch its configuration in process. Over HTTP such a switch is an option at the start of a server.
So each fixture belongs to exactly one variant, and each variant is a separate server. All four are necessary: with only
the new policy defaults 68 tests fail, with only the old ones 47.
"""

from dataclasses import dataclass

#: The origin that the cors variant allows.
CORS_ORIGIN = "http://valid.example.com"
CORS_HEADER = "openstack-api-version"


@dataclass(frozen=True)
class Variant:
    name: str
    policy: str = "old"  #: a name in `moorage.placement.api.routes.POLICIES`
    cors: bool = False


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("default"),
        Variant("secure-rbac", policy="new"),
        Variant("open-policy", policy="open"),
        Variant("cors", cors=True),
    )
}

_OF_FIXTURE = {
    "SecureRBACPolicyFixture": "secure-rbac",
    "OpenPolicyFixture": "open-policy",
    "CORSFixture": "cors",
}


def variant_of(fixture: str) -> str:
    """The variant for files with this fixture."""
    return _OF_FIXTURE.get(fixture, "default")
