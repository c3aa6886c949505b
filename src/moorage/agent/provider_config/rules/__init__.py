"""The rules of provider configuration files: YAML with positions, the checks, and the merge into a provider tree. Pure.

`check` reports every fault with file, line and remedy, not just the first. Not here: reading files
(`provider_config.load`).
"""
