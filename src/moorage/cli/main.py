"""The command tree. A subcommand is imported only when it is called, so that `--help` does not load database code."""

import importlib
import logging
import sys

import click
from click.shell_completion import CompletionItem

from moorage.core.errors import MoorageError

#: {name: (module, attribute, one line of help)}
_COMMANDS = {
    "up": (
        "moorage.cli.commands.up",
        "up",
        "Run Moorage in the foreground: all services, or those named in the configuration.",
    ),
    "status": ("moorage.cli.commands.status", "status", "Show on one screen what runs and what is late or down."),
    "doctor": ("moorage.cli.doctor.command", "doctor", "Find problems of this installation and how to fix them."),
    "host": ("moorage.cli.commands.host", "host", "Enrol the agents of hosts, and revoke their credentials."),
    "agent": ("moorage.cli.agent.command", "agent", "Make this machine a host of a plane."),
    "env": ("moorage.cli.commands.config", "env", "Print the OS_* variables for the openstack clients."),
    "login": (
        "moorage.cli.commands.login",
        "login",
        "Sign in with an OpenID provider, for the openstack clients.",
    ),
    "user": (
        "moorage.cli.commands.people",
        "user",
        "List users, set their passwords, disable and enable them.",
    ),
    "project": ("moorage.cli.commands.people", "project", "List projects."),
    "identity": ("moorage.cli.commands.identity", "identity", "Rotate the key that signs tokens."),
    "clock": ("moorage.cli.commands.identity", "clock", "Show the clock, or move the clock of a rehearsal forward."),
    "audit": (
        "moorage.cli.commands.audit",
        "audit",
        "Find contradictions between Placement and the other services; --fix repairs them.",
    ),
    "explain": (
        "moorage.cli.commands.explain",
        "explain",
        "Explain why hosts fit a request or not, constraint by constraint.",
    ),
    "events": ("moorage.cli.commands.events", "events", "Show changes in placement; --follow waits for new ones."),
    "compute": ("moorage.cli.commands.compute", "compute", "Migrate the flavors of older bare-metal servers."),
    "trail": (
        "moorage.cli.commands.trail",
        "trail",
        "Show who changed what through the APIs, when, from where and with which result.",
    ),
    "history": ("moorage.cli.commands.events", "history", "Show the past state of a provider or consumer."),
    "accelerator": ("moorage.cli.commands.accelerator", "accelerator", "Show the history of devices and their users."),
    "bitstream": ("moorage.cli.commands.accelerator", "bitstream", "Sign a bitstream and its intended use."),
    "provider-config": (
        "moorage.cli.commands.provider_config",
        "provider_config",
        "Check, preview, apply and undo provider configuration files.",
    ),
    "db": ("moorage.cli.commands.db", "db", "Upgrade the databases in phases while processes run."),
    "backup": ("moorage.cli.backup.command", "backup", "Back up the databases and state while Moorage runs."),
    "restore": ("moorage.cli.backup.command", "restore", "Replace the databases and state with those of a backup."),
    "placement": ("moorage.cli.commands.placement", "placement", "Import an existing OpenStack Placement database."),
    "reservation": (
        "moorage.cli.commands.reservation",
        "reservation",
        "Import a Blazar database, or finish the upgrade from an older system.",
    ),
    "calendar-feed": (
        "moorage.cli.commands.calendar_feed",
        "calendar_feed",
        "URLs from which calendar programs read the leases of a project.",
    ),
    "slots": ("moorage.cli.commands.slots", "slots", "Find the next times at which servers can be reserved."),
    "config": ("moorage.cli.commands.config", "config", "Show all options with their values and meanings."),
    "completion": (
        "moorage.cli.commands.config",
        "completion",
        "Print the script for shell completion.",
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but a mistyped name is compared with the commands that are not imported yet."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, possibilities=_COMMANDS, ctx=ctx) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completes command names without importing the commands."""
        names = [CompletionItem(name, help=_COMMANDS[name][2]) for name in _COMMANDS if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in _COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="moorage")
def cli() -> None:
    """Moorage: placement, compute, accelerators and reservations, compatible with OpenStack."""


class WarningLine(logging.Formatter):
    """The warnings of a command, each in one line with its fields. Services log JSON instead."""

    def format(self, record: logging.LogRecord) -> str:
        from moorage.cli.output import printable  # imports Rich
        from moorage.telemetry.logs import fields_of

        fields = ", ".join(f"{name}: {value}" for name, value in fields_of(record).items())
        if record.exc_info:
            fields = ", ".join(filter(None, [fields, f"error: {record.exc_info[1]!r}"]))
        text = f"moorage: {record.getMessage()}" + (f" ({fields})" if fields else "")
        return printable(" ".join(text.split()))


def main() -> object:
    """The console script. Moorage's own errors are printed as one line, never as a stack trace."""
    if logging.lastResort is not None:  # unless a command sets up another log
        logging.lastResort.setFormatter(WarningLine())
    try:
        return cli()
    except MoorageError as error:
        from moorage.cli.output import printable  # imports Rich

        # A service's message may have paragraphs.
        click.echo(f"moorage: {printable(' '.join(error.message.split()))}", err=True)
    except OSError as error:
        if error.filename is None:  # not about a file that somebody could mend
            raise
        from moorage.cli.output import printable

        what = f"{error.filename}: {error.strerror}; check that this user may read and write it, and the disk"
        click.echo(f"moorage: {printable(what)}", err=True)
    sys.exit(1)
