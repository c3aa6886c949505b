"""Provider configuration files: the inventories and traits that an operator adds to the providers of a host.

::

    directory -> load (bytes, permissions) -> rules.yaml_text -> rules.check -> rules.merge (in `agent.tracker`)

`load` reads files; `installation` replaces all of them, and stores the accepted files for `undo`. The
rules are pure. Called by `agent.tracker`, `agent.control` and the command `moorage provider-config`.
Not here: publishing the merged tree, and deciding when to reload.

Spec: docs/evidence/specs/provider-config.md
"""
