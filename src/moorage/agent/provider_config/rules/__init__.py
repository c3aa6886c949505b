"""The rules of provider configuration files: YAML with positions, the checks, and the merge into a provider tree. Pure.

`check` reports all faults, each with file, line and remedy. Not here: reading files
(`provider_config.load`).
"""
