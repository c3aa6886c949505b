"""Writes provider configuration files as an operator would."""

LLC = """
meta: {schema_version: 1.0}
providers:
  - identification: {uuid: $COMPUTE_NODE}
    inventories: {additional: {CUSTOM_LLC: {total: 22, reserved: 2, max_unit: 11}}}
    traits: {additional: [CUSTOM_P_STATE_ENABLED]}
"""
#: A file with another class and another trait.
WAYS = LLC.replace("CUSTOM_LLC", "CUSTOM_WAYS").replace("CUSTOM_P_STATE_ENABLED", "CUSTOM_FAST")


def put(files, text, name="a.yaml"):
    path = files / name
    path.write_text(text)
    path.chmod(0o644)
