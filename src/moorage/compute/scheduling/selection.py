"""What a search for a host ends with: a place, claimed, or the reasons why there is none."""

from dataclasses import dataclass

from moorage.compute.model.servers import Placed
from moorage.placement.client.placement_client import Candidate
from moorage.scheduler.reasons import Reasons


@dataclass(frozen=True)
class Alternate:
    """Where a server could go if its build fails: not claimed."""

    host: str
    root_uuid: str
    candidate: Candidate


@dataclass(frozen=True)
class Selection:
    host: str
    placed: Placed
    claims: int  #: how many were tried, this one included
    root_uuid: str = ""
    alternates: tuple[Alternate, ...] = ()


@dataclass(frozen=True)
class NoHost:
    """`reason` is for users and names no host; `details`, for administrators, do."""

    reasons: Reasons

    @classmethod
    def because(cls, reason: str, details: str = "") -> "NoHost":
        return cls(Reasons(details, note=reason))

    @property
    def reason(self) -> str:
        return self.reasons.user_message()

    @property
    def details(self) -> str:
        return self.reasons.admin_details()
