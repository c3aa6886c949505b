"""The subcommands of `moorage`, a module per command or small group of commands.

`moorage.cli.main` imports a module only when its command is called, so a module may import everything at the top.
Each parses options, calls services or reads databases, and prints a table, or JSON with `--json`.
"""
