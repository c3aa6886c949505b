"""The subcommands of `moorage`, a module per command or small group of commands.

`moorage.cli.main` imports a module only when its command is called, so a module may import everything at the top.
    options -> clients of the services (`cli.services`), or databases (`cli.state`) -> a table, or JSON with ``--json``

Each parses options, and decides nothing. Not here: the larger commands `agent join`, `doctor`, `backup` and `restore`,
which are packages beside this one.
"""
