"""The command tree. Subcommands are imported when they are called: `--help` must not pay for a database."""

import importlib
import sys
from typing import Any

import click
from click.shell_completion import CompletionItem

from moorage.core.errors import MoorageError

#: name -> (module, attribute, one line of help)
_COMMANDS = {
    "up": (
        "moorage.cli.commands.up",
        "up",
        "Run the plane in the foreground: all services, or those the configuration names.",
    ),
    "status": ("moorage.cli.commands.status", "status", "What runs, and what is late or away, in one screen."),
    "doctor": ("moorage.cli.doctor.command", "doctor", "What is wrong with this installation, and what to do."),
    "host": ("moorage.cli.commands.host", "host", "Let the agents of hosts in, and take that back."),
    "env": ("moorage.cli.commands.config", "env", "Print the OS_* variables for the openstack clients."),
    "identity": ("moorage.cli.commands.identity", "identity", "The key that signs tokens: change it."),
    "clock": ("moorage.cli.commands.identity", "clock", "Show the plane's clock, or move a rehearsal's forwards."),
    "audit": (
        "moorage.cli.commands.audit",
        "audit",
        "Find what Placement and the other services disagree on; --fix mends it.",
    ),
    "explain": (
        "moorage.cli.commands.explain",
        "explain",
        "Why hosts fit or do not fit a request, constraint by constraint.",
    ),
    "events": ("moorage.cli.commands.events", "events", "What changed in placement; --follow shows what changes now."),
    "compute": ("moorage.cli.commands.compute", "compute", "Migrate what older bare-metal servers were made with."),
    "trail": (
        "moorage.cli.commands.trail",
        "trail",
        "Who changed what over the APIs, when, from where, and how it ended.",
    ),
    "history": ("moorage.cli.commands.history", "history", "What a provider or consumer was at some time."),
    "accelerator": ("moorage.cli.commands.accelerator", "accelerator", "What was done with devices, and for whom."),
    "bitstream": ("moorage.cli.commands.accelerator", "bitstream", "Sign a bitstream together with what it is for."),
    "provider-config": (
        "moorage.cli.commands.provider_config",
        "provider_config",
        "Check, preview, apply and undo provider configuration files.",
    ),
    "db": ("moorage.cli.commands.db", "db", "Upgrade the databases while processes run, phase by phase."),
    "backup": ("moorage.cli.backup.command", "backup", "Copy databases and state of a plane, while it runs."),
    "restore": ("moorage.cli.backup.command", "restore", "Put a backup in the place of a plane's databases and state."),
    "placement": ("moorage.cli.commands.placement", "placement", "Take over an existing OpenStack Placement database."),
    "reservation": (
        "moorage.cli.commands.reservation",
        "reservation",
        "Finish the upgrade from an older reservation system.",
    ),
    "slots": ("moorage.cli.commands.slots", "slots", "When there is room next for a number of servers."),
    "config": ("moorage.cli.commands.config", "config", "Show the options in force, each with its meaning."),
    "bench": (
        "moorage.cli.commands.bench",
        "bench",
        "How many candidates, claims and leases a second this installation does.",
    ),
    "completion": (
        "moorage.cli.commands.config",
        "completion",
        "Completion of commands and options, for your shell.",
    ),
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of commands without importing the commands."""
        names = [CompletionItem(name, help=_COMMANDS[name][2]) for name in _COMMANDS if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in _COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="moorage")
def cli() -> None:
    """Moorage: who may hold which part of which machine, from when to when."""


def main() -> Any:
    """The console script: errors of ours are one line, never a stack trace."""
    try:
        return cli()
    except MoorageError as error:
        from moorage.cli.output import printable  # imports Rich

        # A service's own words may have paragraphs.
        click.echo(f"moorage: {printable(' '.join(error.message.split()))}", err=True)
        sys.exit(1)
