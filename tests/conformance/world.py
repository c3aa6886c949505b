"""Builds a server's state over HTTP, from sketches.

A *sketch* has one provider per line (a backslash joins lines). Indentation means "child of". After the name follow:

    @AGG               member of the aggregate AGG (its uuid is the variable AGG)
    +TRAIT             has the trait (custom traits are created first)
    RC=total[,k=v...]  has an inventory; ``max_unit`` defaults to the total
    used:RC=n          some consumer uses n of it
    $NAME              the variable for the provider's uuid; without it: NAME_UUID, upper case

Tests depend on these details: every inventory record is one POST (generation +1 each), every list of traits one PUT
(+1), aggregates are written with 1.1 (+0), and every write of allocations is +1. Allocations are written with 1.12, so
that consumers have no type ("unknown" from 1.38 on) and generation 1.
"""

import uuid
from collections.abc import Iterable, Mapping

from tests.conformance.wire import Api


class World:
    """Creates state; `env` has the variables that a file reads, {name: text}.

    With a `seed` all uuids depend only on it, so that two runs send the same requests.
    """

    def __init__(self, api: Api, seed: str | None = None) -> None:
        self.env: dict[str, str] = {}
        self._api = api
        self._seed = seed
        self._drawn = 0
        self._known: set[str] = set()

    def uuid(self) -> str:
        if self._seed is None:
            return str(uuid.uuid4())
        self._drawn += 1
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self._seed}/{self._drawn}"))

    def fresh(self, *variables: str) -> None:
        """The variables with new uuids."""
        for variable in variables:
            self.env[variable] = self.uuid()

    def provider(self, name: str, *, parent: str | None = None, provider_uuid: str | None = None) -> str:
        provider_uuid = provider_uuid or self.uuid()
        body = {"name": name, "uuid": provider_uuid} | ({"parent_provider_uuid": parent} if parent else {})
        self._api("POST", "/resource_providers", "1.20", body)
        return provider_uuid

    def inventory(self, provider: str, resource_class: str, total: int, **more: float) -> None:
        self._ensure("resource_classes", resource_class, "1.7")
        body = {
            "resource_class": resource_class,
            "total": total,
            "max_unit": total,
            "resource_provider_generation": self._generation(provider),
        }
        self._api("POST", f"/resource_providers/{provider}/inventories", "1.0", body | more)

    def traits(self, provider: str, names: Iterable[str]) -> None:
        names = list(names)
        for name in names:
            self._ensure("traits", name, "1.6")
        body = {"traits": names, "resource_provider_generation": self._generation(provider)}
        self._api("PUT", f"/resource_providers/{provider}/traits", "1.6", body)

    def aggregates(self, provider: str, names: Iterable[str]) -> None:
        uuids = [self.env.setdefault(name, self.uuid()) for name in names]
        self._api("PUT", f"/resource_providers/{provider}/aggregates", "1.1", uuids)

    def use(self, provider: str, amounts: Mapping[str, int], *, user="world-user", project="world-project") -> str:
        """Creates a consumer with the allocations `amounts`; returns its uuid."""
        consumer = self.uuid()
        body = {"allocations": {provider: {"resources": amounts}}, "user_id": user, "project_id": project}
        self._api("PUT", f"/allocations/{consumer}", "1.12", body)
        return consumer

    def _ensure(self, kind: str, name: str, version: str) -> None:
        if name.startswith("CUSTOM_") and name not in self._known:
            self._api("PUT", f"/{kind}/{name}", version)
            self._known.add(name)

    def _generation(self, provider: str) -> int:
        return self._api("GET", f"/resource_providers/{provider}", "1.0")["generation"]

    def draw(self, sketch: str) -> None:
        above: list[tuple[int, str]] = []  # (indentation, provider uuid) of the lines that may be parents
        for line in sketch.splitlines():
            words = line.split()
            if not words:
                continue
            indentation = len(line) - len(line.lstrip())
            while above and above[-1][0] >= indentation:
                above.pop()
            provider = self.provider(words[0], parent=above[-1][1] if above else None)
            above.append((indentation, provider))
            self._furnish(provider, words[0], words[1:])

    def _furnish(self, provider: str, name: str, words: list[str]) -> None:
        aggregates = [word[1:] for word in words if word[0] == "@"]
        traits = [word[1:] for word in words if word[0] == "+"]
        variables = [word[1:] for word in words if word[0] == "$"]
        used = [word.removeprefix("used:").split("=") for word in words if word.startswith("used:")]
        self.env[variables[0] if variables else f"{name.upper()}_UUID"] = provider
        if aggregates:
            self.aggregates(provider, aggregates)
        for word in words:
            if word[0] not in "@+$" and not word.startswith("used:"):
                resource_class, _, numbers = word.partition("=")
                total, *options = numbers.split(",")
                more = dict(option.split("=") for option in options)
                self.inventory(
                    provider, resource_class, int(total), **{key: _number(text) for key, text in more.items()}
                )
        if used:
            self.use(provider, {resource_class: int(amount) for resource_class, amount in used})
        if traits:
            self.traits(provider, traits)


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)
