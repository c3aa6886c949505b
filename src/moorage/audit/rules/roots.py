"""Where providers are: the roots that their parents lead to, and words for several of them."""

from collections.abc import Iterable, Mapping

from moorage.audit.model import AuditedProvider, AuditSnapshot


def roots(providers: Mapping[str, AuditedProvider]) -> dict[str, str]:
    """{provider: the root that its parents lead to}; one in a loop, or below one, is its own."""
    found: dict[str, str] = {}
    for uuid in providers:
        path, here = [uuid], uuid
        while (parent := providers[here].parent_uuid) is not None and parent in providers and parent not in path:
            path.append(parent)
            here = parent
        found[uuid] = uuid if parent in path else here
    return found


def names_of(picture: AuditSnapshot, uuids: Iterable[str]) -> str:
    """Of providers, for people."""
    return listed(sorted(picture.providers[uuid].name if uuid in picture.providers else uuid for uuid in uuids))


def listed(names: list[str], shown: int = 3) -> str:
    rest = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + rest
