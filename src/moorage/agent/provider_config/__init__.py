"""Provider configuration files: what an operator adds to the providers of a host.

Spec: docs/evidence/specs/provider-config.md. `load` reads files, `yaml_text` and `check` judge them, `merge` applies them.
"""
