"""Sends a script to both sides, finds differences, and finds the shortest script that still shows them."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from tests.conformance.compare import Difference, between, document, masked
from tests.differential.known import GHOST, STATUS, explanation_of
from tests.differential.scripts import state
from tests.differential.sides import Answered, Asked, Side, Upstream


@dataclass(frozen=True)
class Found:
    """An unexplained difference in the answer to request number `step` of `script`."""

    step: int
    difference: Difference

    @property
    def kind(self) -> tuple[object, ...]:
        """The kind of difference that a shortened script must still show."""
        difference = self.difference
        place = difference.target.partition("?")[0].count("/")
        return difference.method, place, difference.what, difference.status


class Twins:
    def __init__(self, upstream: Upstream, ours: Side) -> None:
        self._upstream, self._ours = upstream, ours

    def differences(self, script: Sequence[Asked]) -> Iterator[Found]:
        """Empties both sides, sends `script` to both, then compares all state; yields all differences."""
        self._upstream.empty()
        self._ours.empty()
        for step, asked in enumerate([*script, *state()]):
            for difference in self._between(replace(asked, body=self._resolved(asked.body))):
                yield Found(step, difference)

    def first(self, script: Sequence[Asked]) -> Found | None:
        """The first unexplained difference."""
        return next((found for found in self.differences(script) if explanation_of(found.difference) is None), None)

    def shortest(self, script: Sequence[Asked], found: Found) -> list[Asked]:
        """A part of `script` with the same kind of difference, from which no request can be removed."""
        script = list(script[: found.step + 1])
        size = max(1, len(script) // 2)
        while size:
            at = 0
            while at < len(script):
                shorter = script[:at] + script[at + size :]
                seen = self.first(shorter)
                if seen is not None and seen.kind == found.kind:
                    script = shorter
                else:
                    at += size
            size //= 2
        return script

    def _between(self, asked: Asked) -> Iterator[Difference]:
        theirs, own = self._upstream.ask(asked), self._ours.ask(asked)
        left, right = _exchange(asked, theirs), _exchange(asked, own)
        if theirs.status != own.status:
            sides = [[side["status"], document(side["response_body"])] for side in (left, right)]
            yield Difference("", "", asked.method, asked.target, asked.version, theirs.status, STATUS, *sides)
        else:
            yield from between("", left, right)
        if asked.method in ("PUT", "POST") and asked.target.startswith(("/allocations", "/reshaper")):
            yield from self._empty_consumers(asked, theirs)
        if "limit=" in asked.target and own.status == theirs.status == 200:
            yield from self._beyond_the_limit(asked, own)

    def _empty_consumers(self, asked: Asked, theirs: Answered) -> Iterator[Difference]:
        """Only requests that give a new consumer nothing, or that name a wrong provider, leave consumers without
        allocations.
        """
        for uuid in self._upstream.remove_ghosts():
            wishes = asked.body["allocations"] if asked.target == "/reshaper" else asked.body
            wish = wishes if asked.method == "PUT" else wishes[uuid]
            expected = not wish["allocations"] or (theirs.status == 400 and "that does not exist" in theirs.body)
            what = GHOST if expected else "a ghost for another reason"
            yield Difference("", "", asked.method, asked.target, asked.version, theirs.status, what, uuid, None)

    def _beyond_the_limit(self, asked: Asked, own: Answered) -> Iterator[Difference]:
        """With a limit, any candidates may be returned, but they must belong to the candidates without a limit."""
        path, _, query = asked.target.partition("?")
        rest = "&".join(pair for pair in query.split("&") if not pair.startswith("limit="))
        unlimited = replace(asked, target=f"{path}?{rest}")
        yield from self._between(unlimited)
        every, left = document(self._ours.ask(unlimited).body), document(own.body)
        strange = [one for one in left["allocation_requests"] if one not in every["allocation_requests"]]
        strange += [one for one in left["provider_summaries"].items() if one not in every["provider_summaries"].items()]
        if strange:
            yield Difference("", "", "GET", asked.target, asked.version, 200, "beyond the limit", [], strange)

    def _resolved(self, body: object) -> object:
        """`body` with generations in place of texts such as ``@provider UUID -1``."""
        if isinstance(body, dict):
            return {name: self._resolved(value) for name, value in body.items()}
        if isinstance(body, list):
            return [self._resolved(value) for value in body]
        if isinstance(body, str) and body.startswith("@"):
            kind, uuid, offset = body[1:].split()
            return self._generation(kind, uuid, int(offset))
        return body

    def _generation(self, kind: str, uuid: str, offset: int) -> int | None:
        """Upstream's generation; if ours differs, the next answers differ. None: the consumer is new."""
        if kind == "provider":
            answered = self._upstream.ask(Asked("GET", f"/resource_providers/{uuid}"))
            return max(0, answered.document.get("generation", 0) + offset)
        known = self._upstream.ask(Asked("GET", f"/allocations/{uuid}")).document.get("consumer_generation")
        return (known or 0) + offset if offset else known


def _exchange(asked: Asked, answered: Answered) -> dict:
    return masked(
        {
            "test": "",
            "method": asked.method,
            "target": asked.target,
            "headers": asked.version,
            "body": asked.text or "",
            "status": answered.status,
            "response_headers": answered.headers,
            "response_body": answered.body,
        }
    )


def to_text(script: Sequence[Asked]) -> str:
    """One request per line, as `from_text` reads them."""
    return "\n".join(json.dumps(asdict(asked)) for asked in script)


def from_text(text: str) -> list[Asked]:
    return [Asked(**json.loads(line)) for line in text.splitlines() if line.strip()]
