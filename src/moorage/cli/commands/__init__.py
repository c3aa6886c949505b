"""The subcommands of `moorage`, one module each."""
