"""Results of a host search: a claimed selection, or the reasons why there is no host."""

from dataclasses import dataclass

from moorage.compute.model.servers import Placed
from moorage.placement.client.placement_client import Candidate
from moorage.scheduler.reasons import Reasons


@dataclass(frozen=True)
class Alternate:
    """An unclaimed candidate that the server could use if its build fails."""

    host: str
    root_uuid: str
    candidate: Candidate


@dataclass(frozen=True)
class Selection:
    host: str
    placed: Placed
    claims: int  #: number of claims tried, including this one
    root_uuid: str = ""
    alternates: tuple[Alternate, ...] = ()


@dataclass(frozen=True)
class NoHost:
    """`reason` is for users and names no host; `details` is for administrators and does."""

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
