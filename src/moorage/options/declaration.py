"""Declares an option: a field of its section's dataclass."""

from dataclasses import field
from typing import Any


def option(default: Any, help_text: str, *, choices: tuple[str, ...] = ()) -> Any:
    """A field with its default and help text. A text option with `choices` takes only those."""
    return field(default=default, metadata={"help": help_text, "choices": choices})
