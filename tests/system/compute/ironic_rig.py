"""A real Ironic in one process, on SQLite, with fake hardware; runs in .venv-ironic.

usage: ironic_rig.py STATE PORT

Every caller is admin. Nodes are rows only, but each step of the conductor runs. It is ready when ``/`` answers.
"""

import sys
from pathlib import Path

CONFIGURATION = """\
[DEFAULT]
auth_strategy = noauth
host = localhost
state_path = {state}
rpc_transport = none
enabled_hardware_types = fake-hardware
enabled_bios_interfaces = fake
enabled_boot_interfaces = fake
enabled_console_interfaces = fake
enabled_deploy_interfaces = fake
enabled_firmware_interfaces = fake
enabled_inspect_interfaces = fake
enabled_management_interfaces = fake
enabled_network_interfaces = noop
enabled_power_interfaces = fake
enabled_raid_interfaces = fake
enabled_rescue_interfaces = fake
enabled_storage_interfaces = noop
enabled_vendor_interfaces = fake
[api]
host_ip = 127.0.0.1
port = {port}
[conductor]
automated_clean = false
[database]
connection = sqlite:///{state}/ironic.db
[service_catalog]
auth_type = none
endpoint_override = http://127.0.0.1:{port}
"""


def main(state: Path, port: int) -> None:
    state.mkdir(parents=True)
    file = state / "ironic.conf"
    file.write_text(CONFIGURATION.format(state=state, port=port))
    sys.argv = ["ironic", "--config-file", str(file)]
    from ironic.command.singleprocess import main as serve
    from ironic.common.service import prepare_command
    from ironic.conf import CONF
    from ironic.db.migration import create_schema

    prepare_command(sys.argv)
    create_schema()
    CONF.reset()  # `serve` reads the configuration once more
    serve()


main(Path(sys.argv[1]), int(sys.argv[2]))
