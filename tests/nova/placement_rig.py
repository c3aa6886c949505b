"""The real Placement behind a real Keystone; run by .venv-conformance.

usage: python -W ignore -m tests.nova.placement_rig PORT DIRECTORY DATABASE_URL KEYSTONE_URL PASSWORD
"""

import os
import sys
from pathlib import Path

from placement import wsgi

from tests.conformance.literal_server import serve

CONFIGURATION = """\
[api]
auth_strategy = keystone
[placement_database]
connection = {database}
sync_on_startup = true
[oslo_concurrency]
lock_path = {directory}
[keystone_authtoken]
www_authenticate_uri = {keystone}
auth_url = {keystone}
auth_type = password
username = moorage
password = {password}
project_name = service
user_domain_id = default
project_domain_id = default
"""


def main() -> None:
    port, directory, database, keystone, password = sys.argv[1:]
    text = CONFIGURATION.format(
        database=database.replace("postgresql:", "postgresql+psycopg2:", 1), directory=directory, keystone=keystone,
        password=password,
    )  # fmt: skip
    Path(directory, "placement.conf").write_text(text)
    os.environ["OS_PLACEMENT_CONFIG_DIR"] = directory
    serve(wsgi.init_application(), int(port))


main()
