"""Generates docs/reference/commands.md from the commands and from `moorage.cli.exit_codes`.

usage: .venv/bin/python tools/commands_page.py
"""

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from moorage.cli import exit_codes
from moorage.cli.main import cli

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"

_HEAD = """\
# Commands and exit codes

`tools/commands_page.py` writes this page from the commands themselves; `moorage COMMAND --help` shows the same.

`--config FILE` (or `MOORAGE_CONFIG`) names the plane; the default is the one in `~/.local/state/moorage`. A command that calls
services uses those of `OS_AUTH_URL` if it is set and `--config` is not given. Commands that show something accept `--json`: one
document, or one per line for a list without an end. Tables are at most 100 columns wide, and `NO_COLOR` is respected. An error is one
line on standard error, `moorage: what, where, what to do`, never a stack trace.
"""


def page() -> str:
    parts = [_HEAD, "## Exit codes\n", _exit_codes(), "## Commands\n"]
    parts += [_section(name, command) for name, command in commands(cli)]
    return "\n".join(parts)


def commands(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    """[(words, command)] for every command that can be called, without the names of hidden ones."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        words = f"{prefix}{name}" if not command.hidden else prefix.rstrip()
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                yield words, command
            yield from commands(command, f"{words} ")
        else:
            yield words, command


def _exit_codes() -> str:
    rows = ["| command | code | means |", "|---|---|---|"]
    rows += [f"| every | {code.value} | {meaning} |" for code, meaning in exit_codes.EVERYWHERE.items()]
    for command, meanings in sorted(exit_codes.MEANINGS.items()):
        rows += [f"| `{command}` | {code} | {meaning} |" for code, meaning in sorted(meanings.items())]
    return "\n".join(rows) + "\n"


def _section(words: str, command: click.Command) -> str:
    usage = " ".join(["moorage", words, *argument_words(command)])
    text = inspect.cleandoc(command.help or "")
    rows = [_option(one) for one in command.params if isinstance(one, click.Option) and not one.hidden]
    options = "\n".join(["", "| option | |", "|---|---|", *rows]) + "\n" if rows else ""
    return f"### `{usage}`\n\n{text}\n{options}"


def argument_words(command: click.Command) -> list[str]:
    """The arguments as a usage line shows them: ``DIRECTORY``, ``[NAME]...``."""
    return [_argument(one) for one in command.params if isinstance(one, click.Argument)]


def _argument(argument: click.Argument) -> str:
    name = (argument.metavar or argument.name or "").upper()
    if isinstance(argument.type, click.Choice):
        name = "|".join(argument.type.choices)
    return (name if argument.required else f"[{name}]") + ("..." if argument.nargs == -1 else "")


def _option(option: click.Option) -> str:
    value = "" if option.is_flag else f" {option.make_metavar(click.Context(cli))}"
    names = ", ".join(option.opts)
    text = " ".join((option.help or "").split())
    return f"| `{names}{value}` | {text} |".replace("[", r"\[").replace("\\[default", "[default").replace("\n", " ")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
