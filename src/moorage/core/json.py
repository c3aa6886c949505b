"""The types of JSON documents.

`JsonObject` is for documents that no struct describes, or that are only passed on. A document whose fields are read
is decoded into a struct (msgspec) at the edge.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

#: Read-only, so that ``dict[str, int]`` or ``list[str]`` is one, too.
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
JsonObject: TypeAlias = Mapping[str, Json]
