"""The rules of provider configuration files: YAML with positions, the checks, and the merge into a provider tree. Pure.

    text -> yaml_text (values with their positions) -> check (all faults, or ProviderConfigs) -> merge (into a tree)

`check` reports all faults, each with file, line and remedy; `model` has a file's content as values, and its faults.
Not here: reading files (`provider_config.load`). Callers: `provider_config.load`; `agent.tracker` merges.
"""
