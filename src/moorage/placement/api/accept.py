"""The Accept header, as far as it decides between JSON, HTML and plain text."""

from functools import lru_cache


@lru_cache(maxsize=256)
def quality(accept: str, media_type: str) -> float:
    """How welcome `media_type` is: 0 (not at all) to 1; the most special range that covers it counts."""
    best = (-1, 0.0)
    kind = media_type.partition("/")[0]
    for part in accept.split(","):
        media_range, *parameters = (piece.strip().lower() for piece in part.split(";"))
        specificity = {media_type: 2, f"{kind}/*": 1, "*/*": 0}.get(media_range)
        if specificity is not None:
            best = max(best, (specificity, _q(parameters)))
    return best[1]


def _q(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0
