"""Generates docs/reference/options.md from `moorage.config`."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from moorage.config import Config
from tools.reference.tables import code, heading, table

WORDS = """
Options are in an INI file: `moorage.conf` in the state directory, unless `--config` or `MOORAGE_CONFIG` names another file. `moorage
config show` prints all options with the values in force. A file needs only the options that differ from the defaults; the first
start of `moorage up` writes such a file. A section may appear more than once. Unknown options are errors at the start, and so is an
option that is set twice to different values. Lists are separated by commas. Times are in seconds (`_s`) unless the name says otherwise.
"""


def page() -> str:
    defaults = Config()
    sections = [
        field.name for field in dataclasses.fields(Config) if dataclasses.is_dataclass(getattr(defaults, field.name))
    ]
    return heading("Options", WORDS) + "".join(section(name, getattr(defaults, name)) for name in sections)


def section(name: str, defaults: Any) -> str:
    return f"\n## [{name}]\n" + table(["option", "default", "meaning"], rows(defaults))


def rows(defaults: Any) -> Iterator[list[str]]:
    for field in dataclasses.fields(defaults):
        choices = field.metadata.get("choices", ())
        allowed = f" One of {', '.join(map(code, choices))}." if choices else ""
        yield [
            code(field.name),
            code(shown(getattr(defaults, field.name))),
            f"{field.metadata['help'].replace('*', chr(92) + '*')}{allowed}",
        ]


def shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
