"""A real Neutron in one process, on SQLite; runs in .venv-neutron.

usage: neutron_rig.py STATE PORT [--host NAME ...] [--broker URL --identity URL --user NAME --password TEXT
                                                                 --project NAME]

Without a broker every caller is admin, and networks are rows only: there are no bridges and no packets. Of each HOST it
is told what two agents report there, so that it binds ports to the host: that of Open vSwitch, with a bridge for the
physical network `outside`, and that of network cards with virtual functions, with one on the physical network `fast`.

With a broker it listens to agents, asks the identity service about callers, and tells compute what happens to ports.

It is ready when ``/`` answers.
"""

import argparse
import os
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

CONFIGURATION = """\
[DEFAULT]
auth_strategy = {auth}
core_plugin = ml2
service_plugins = router,trunk
api_paste_config = {prefix}/etc/neutron/api-paste.ini
log_file = {state}/neutron.log
transport_url = {broker}
agent_down_time = 1000000
notify_nova_on_port_status_changes = {notifies}
notify_nova_on_port_data_changes = {notifies}
send_events_interval = 1
[database]
connection = sqlite:///{state}/neutron.db
[oslo_concurrency]
lock_path = {state}/locks
[oslo_messaging_notifications]
driver = noop
[ml2]
type_drivers = flat,vlan,local
tenant_network_types = local
mechanism_drivers = openvswitch,sriovnicswitch
extension_drivers = port_device_profile
[ml2_type_flat]
flat_networks = *
[ml2_type_vlan]
network_vlan_ranges = fast
[keystone_authtoken]
{account}
[nova]
{account}
"""

ACCOUNT = """\
auth_type = password
auth_url = {identity}
www_authenticate_uri = {identity}
username = {user}
password = {password}
project_name = {project}
user_domain_id = default
project_domain_id = default
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("state", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("--host", action="append", default=[])
    for name in ("broker", "identity", "user", "password", "project"):
        parser.add_argument(f"--{name}", default="")
    asked = parser.parse_args()
    asked.state.mkdir(parents=True)
    account = ""
    if asked.broker:  # of the two sections, each ignores the option that only the other has
        account = ACCOUNT.format(**vars(asked))
    text = CONFIGURATION.format(
        state=asked.state,
        prefix=sys.prefix,
        auth="keystone" if asked.broker else "noauth",
        broker=asked.broker or "fake:/",
        notifies=bool(asked.broker),
        account=account,
    )
    (asked.state / "neutron.conf").write_text(text)
    os.environ["OS_NEUTRON_CONFIG_DIR"] = str(asked.state)
    os.environ["OS_NEUTRON_CONFIG_FILES"] = "neutron.conf"
    make_tables(asked.state)
    sys.argv = ["neutron-api"]
    from neutron.wsgi.api import application
    from werkzeug.serving import run_simple

    for host in asked.host:
        report_agents(host)
    if asked.broker:
        listen_to_agents()
    run_simple("127.0.0.1", asked.port, application, threaded=True)


def make_tables(state: Path) -> None:
    """Creates the tables from the models, because Neutron's own migrations do not run on SQLite."""
    from neutron.db.migration.models import head
    from sqlalchemy import create_engine

    engine = create_engine(f"sqlite:///{state}/neutron.db")
    head.get_metadata().create_all(engine)
    engine.dispose()


def report_agents(host: str) -> None:
    from neutron_lib import context
    from neutron_lib.plugins import directory
    from oslo_utils import timeutils

    of_switch = {
        "bridge_mappings": {"outside": "br-outside"},
        "datapath_type": "system",
        "integration_bridge": "br-int",
        "ovs_hybrid_plug": False,
        "tunnel_types": [],
    }
    of_cards = {"device_mappings": {"fast": ["eth1"]}}
    plugin = directory.get_plugin()
    for kind, binary, configurations in (
        ("Open vSwitch agent", "neutron-openvswitch-agent", of_switch),
        ("NIC Switch agent", "neutron-sriov-nic-agent", of_cards),
    ):
        report = {
            "agent_type": kind,
            "binary": binary,
            "host": host,
            "topic": "N/A",
            "configurations": configurations,
            "start_flag": True,
        }
        plugin.create_or_update_agent(context.get_admin_context(), report, timeutils.utcnow())


def listen_to_agents() -> None:
    """Does in this process what neutron-rpc-server does in one of its own."""
    from neutron_lib.plugins import directory

    for plugin in directory.get_unique_plugins():
        for name in ("start_rpc_listeners", "start_rpc_state_reports_listener"):
            if hasattr(plugin, name):
                try:
                    getattr(plugin, name)()
                except NotImplementedError:
                    print(f"{plugin}: no {name}", file=sys.stderr)


main()
