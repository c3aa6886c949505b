"""Results of a host search: a claimed selection, or the reasons why there is no host."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moorage.compute.model.servers import Placed
from moorage.core.errors import Invalid, MoorageError, RemoteError, Unavailable
from moorage.core.names import DISABLED_HOST_TRAIT, RESERVED_HOST_TRAIT
from moorage.placement.client.placement_client import Candidate, Explanation
from moorage.scheduler.reasons import Reasons, RejectionCount

#: {condition that every request has, as Placement words it: words for users}
_CONDITION_WORDS = {
    f"root_required=!{DISABLED_HOST_TRAIT},!{RESERVED_HOST_TRAIT}": "enabled and not under reservation",
    f"root_required=!{DISABLED_HOST_TRAIT}": "enabled",
}


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


#: A selection for each server of an order; or the reasons why one has no host; or the error that prevented the search.
Outcome = Sequence[Selection] | NoHost | MoorageError


def failed_outcome(error: MoorageError) -> NoHost | MoorageError:
    """Reasons if Placement can never fulfil the request. Otherwise an error: the search may be tried again later."""
    if isinstance(error, Invalid):
        return NoHost.because(f"The flavor cannot be placed: {error.message}")
    if not isinstance(error, RemoteError):
        return error
    if error.status >= 500:
        return Unavailable(error.message)
    # Placement's own sentence, without the sentence that its web framework puts before it.
    sentence = str(error.fields.get("detail") or error.message).rpartition("\n\n")[2].strip()
    return NoHost.because(f"Placement refused the request: {sentence}", error.message)


def no_candidates(query: str, meanings: Mapping[str, str], explanation: Explanation | None) -> NoHost:
    """The reasons why Placement has no candidate; a Placement without the explain extension gives none."""
    if explanation is None:
        return NoHost(Reasons(query, note=f"Placement has no candidate for {query}"))
    change = explanation.change
    return NoHost(
        Reasons(
            query,
            rejection_counts(meanings, explanation),
            note="" if explanation.steps else "there is no host",
            closest=tuple(f"{one.provider}: {'; '.join(one.lacks)}" for one in explanation.closest),
            change="" if change is None else f"{'; '.join(change.parts)} on {change.provider}",
        )
    )


def rejection_counts(meanings: Mapping[str, str], explanation: Explanation | None) -> tuple[RejectionCount, ...]:
    """The counts of Placement. `meanings`: {uuid in the query: words for users}."""

    def condition_in_words(constraint: str) -> str:
        return next(
            (words for uuid, words in meanings.items() if uuid in constraint),
            _CONDITION_WORDS.get(constraint, constraint),
        )

    return tuple(
        RejectionCount(condition_in_words(step.constraint), step.before, step.after, step.removed)
        for step in (() if explanation is None else explanation.steps)
    )
