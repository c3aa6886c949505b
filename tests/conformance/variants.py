"""The configurations of a server that the suite needs.

The peer's fixtures switch its configuration in process. Over HTTP that is a start option of a server, so every
fixture belongs to exactly one variant, and every variant is a server of its own. All four are needed: with the new
policy defaults alone 68 tests fail, with the old ones alone 47.
"""

from dataclasses import dataclass

#: What the cors variant lets in.
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
    """Name of the variant that files with this fixture need."""
    return _OF_FIXTURE.get(fixture, "default")
