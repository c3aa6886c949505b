"""Runs the real Placement for comparison, in .venv-conformance, on a SQLite file in DIRECTORY or on a database.

usage: python -W ignore -m tests.conformance.upstream_server VARIANT PORT DIRECTORY [DATABASE_URL]
"""

import json
import os
import sys
from pathlib import Path

import jsonschema
from placement import policies, wsgi

from tests.conformance.literal_server import serve
from tests.conformance.variants import CORS_HEADER, CORS_ORIGIN, VARIANTS, Variant

#: The database drivers of .venv-conformance, where they differ from those of the URL.
_DRIVERS = {"postgresql": "postgresql+psycopg2", "mariadb": "mysql+pymysql"}


def write_configuration(variant: Variant, directory: Path, database_url: str = "") -> None:
    """``placement.conf`` and ``policy.yaml``, in upstream's syntax."""
    kind, _, rest = (database_url or f"sqlite:///{directory}/placement.db").partition(":")
    connection = f"{_DRIVERS.get(kind, kind)}:{rest}"
    sections = {
        "api": {"auth_strategy": "noauth2"},
        "placement_database": {"connection": connection, "sync_on_startup": "true"},
        "oslo_policy": {
            "enforce_new_defaults": str(variant.policy == "new").lower(),
            "policy_file": f"{directory}/policy.yaml",
        },
        "oslo_concurrency": {"lock_path": str(directory)},
    }
    if variant.cors:
        sections["cors"] = {"allowed_origin": CORS_ORIGIN, "allow_headers": CORS_HEADER}
    lines = []
    for section, options in sections.items():
        lines += [f"[{section}]", *(f"{name} = {value}" for name, value in options.items())]
    (directory / "placement.conf").write_text("\n".join(lines) + "\n")
    open_rules = {rule.name: "@" for rule in policies.list_rules() if hasattr(rule, "operations")}
    # JSON is YAML.
    (directory / "policy.yaml").write_text(json.dumps(open_rules if variant.policy == "open" else {}))


def check_each_schema_once() -> None:
    """Upstream validates a constant schema at each request, which takes a quarter of its time; this validates it
    once.
    """
    checked = {}
    check = jsonschema.Draft202012Validator.check_schema

    def check_once(schema, **options):
        if id(schema) not in checked:
            check(schema, **options)
            checked[id(schema)] = schema

    jsonschema.Draft202012Validator.check_schema = check_once


def main() -> None:
    check_each_schema_once()
    variant, port, directory = VARIANTS[sys.argv[1]], int(sys.argv[2]), Path(sys.argv[3])
    write_configuration(variant, directory, *sys.argv[4:5])
    os.environ["OS_PLACEMENT_CONFIG_DIR"] = str(directory)
    serve(wsgi.init_application(), port)


if __name__ == "__main__":
    main()
