"""Compares two records of the suite, exchange by exchange: status, headers and body.

The suite asserts only a part of each answer; this compares the rest. Request ids, dates and the server's address are
masked. Uuids that a server generated (they occur in one record only) are numbered in the order of their appearance in a
file. Lists are compared as multisets, because the order of upstream's lists differs between its processes.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_HEADERS = (
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "access-control-expose-headers",
    "access-control-max-age",
    "allow",
    "cache-control",
    "content-type",
    "last-modified",
    "location",
    "openstack-api-version",
    "vary",
    "www-authenticate",
    "x-openstack-request-id",
)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MASKS = (
    (re.compile(rf"req-{_UUID.pattern}"), "req-ID"),
    (re.compile(r'https?://[^/\s"]+:\d+'), "http://SERVER"),
    (re.compile(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT"), "DATE"),
)


@dataclass(frozen=True)
class Difference:
    """`what` is ``status``, ``body`` or the name of a header; `upstream` and `ours` are its values, None if it is
    missing.
    """

    file: str
    test: str
    method: str
    target: str
    version: str | None
    status: int  #: of upstream's answer
    what: str
    upstream: object
    ours: object
    request: str = ""  #: the body of the request

    def __str__(self) -> str:
        head = f"{self.file}::{self.test}\n  {self.method} {self.target} ({self.version}): {self.status}, {self.what}"
        return f"{head}\n    - {json.dumps(self.upstream)[:1500]}\n    + {json.dumps(self.ours)[:1500]}"


def differences(upstream: Path, ours: Path) -> Iterator[Difference]:
    """The differences between two records (``run_gabbits --record``) with the same seed. Raises `ValueError` if the
    requests differ.
    """
    theirs, own = _load(upstream), _load(ours)
    for file in sorted(theirs.keys() | own.keys()):
        lefts, rights = _number_uuids(theirs[file], own[file]), _number_uuids(own[file], theirs[file])
        if [_request(exchange) for exchange in lefts] != [_request(exchange) for exchange in rights]:
            raise ValueError(f"{file}: the two servers were not asked the same")
        for left, right in zip(lefts, rights, strict=True):
            yield from between(file, left, right)


def _load(path: Path) -> dict[str, list[dict]]:
    """{file: exchanges}, masked."""
    files = defaultdict(list)
    for line in path.read_text().splitlines():
        exchange = json.loads(line)
        exchange["headers"] = exchange["headers"].get("openstack-api-version")
        files[exchange["file"]].append(masked(exchange))
    return files


def masked(exchange: dict) -> dict:
    """The exchange without values that always differ, and without headers that no client uses."""
    headers = {name: value for name, value in exchange["response_headers"].items() if name in _HEADERS}
    return {name: _mask(value) for name, value in {**exchange, "response_headers": headers}.items()}


def _mask(value):
    if isinstance(value, dict):
        return {name: _mask(one) for name, one in value.items()}
    if isinstance(value, str):
        for pattern, replacement in _MASKS:
            value = pattern.sub(replacement, value)
    return value


def _number_uuids(exchanges: list[dict], others: list[dict]) -> list[dict]:
    """`exchanges` with the uuids that are not in `others` replaced by NEW-1, NEW-2, ..."""
    shared = set(_UUID.findall(json.dumps(others)))
    numbers: dict[str, int] = {}

    def name(match: re.Match[str]) -> str:
        if match[0] in shared:
            return match[0]
        return f"NEW-{numbers.setdefault(match[0], len(numbers) + 1)}"

    return [json.loads(_UUID.sub(name, json.dumps(exchange))) for exchange in exchanges]


def _request(exchange: dict) -> tuple[object, ...]:
    """The request in a form to compare. Some tests send what an earlier answer listed, in the order of that answer."""
    return exchange["test"], exchange["method"], exchange["target"], json.dumps(document(exchange["body"]))


def document(text: str) -> object:
    """A body with sorted lists; the text itself if it is not JSON."""
    try:
        return unordered(json.loads(text))
    except ValueError:
        return text


def unordered(value: object) -> object:
    """Sorts lists, so that documents that differ only in the order of lists are equal."""
    if isinstance(value, dict):
        return {name: unordered(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return sorted((unordered(one) for one in value), key=json.dumps)
    return value


def between(file: str, left: dict, right: dict) -> Iterator[Difference]:
    """Compares two masked exchanges, upstream's first."""
    pairs = {name: (left["response_headers"].get(name), right["response_headers"].get(name)) for name in _HEADERS}
    pairs["status"] = (left["status"], right["status"])
    pairs["body"] = (document(left["response_body"]), document(right["response_body"]))
    for what, (upstream, ours) in pairs.items():
        if upstream != ours:
            yield Difference(
                file,
                left["test"],
                left["method"],
                left["target"],
                left["headers"],
                left["status"],
                what,
                upstream,
                ours,
                left["body"],
            )
