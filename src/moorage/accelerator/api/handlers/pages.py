"""What the lists that come in pages have in common."""

from moorage.core.errors import Invalid

MOST = 1000
_USUAL = 100


def limit_of(text: str | None) -> int:
    """Raises `Invalid`."""
    if text is None:
        return _USUAL
    if not (text.isdecimal() and len(text) < 5 and 0 < int(text) <= MOST):
        raise Invalid(f"limit={text!r}; it takes 1 to {MOST}.")
    return int(text)
