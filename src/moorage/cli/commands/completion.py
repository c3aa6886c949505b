"""`moorage completion`: what a shell needs to complete commands, options and choices."""

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL: eval "$(moorage completion bash)", in its start-up file."""
    click.echo(_SHELLS[shell](ctx.find_root().command, {}, "moorage", "_MOORAGE_COMPLETE").source())
