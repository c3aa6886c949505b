"""A real Neutron in one process, on SQLite, without agents; runs in .venv-neutron.

usage: neutron_rig.py STATE PORT

Every caller is admin. Networks are rows only: there are no bridges and no packets. It is ready when ``/`` answers.
"""

import os
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

CONFIGURATION = """\
[DEFAULT]
auth_strategy = noauth
core_plugin = ml2
service_plugins = router
api_paste_config = {prefix}/etc/neutron/api-paste.ini
log_file = {state}/neutron.log
transport_url = fake:/
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
[database]
connection = sqlite:///{state}/neutron.db
[oslo_concurrency]
lock_path = {state}/locks
[oslo_messaging_notifications]
driver = noop
[ml2]
type_drivers = flat,local
tenant_network_types = local
mechanism_drivers =
extension_drivers =
[ml2_type_flat]
flat_networks = *
"""


def main(state: Path, port: int) -> None:
    state.mkdir(parents=True)
    file = state / "neutron.conf"
    file.write_text(CONFIGURATION.format(state=state, prefix=sys.prefix))
    os.environ["OS_NEUTRON_CONFIG_DIR"] = str(state)
    os.environ["OS_NEUTRON_CONFIG_FILES"] = "neutron.conf"
    make_tables(state)
    sys.argv = ["neutron-api"]
    from neutron.wsgi.api import application
    from werkzeug.serving import run_simple

    run_simple("127.0.0.1", port, application, threaded=True)


def make_tables(state: Path) -> None:
    """Creates the tables from the models, because Neutron's own migrations do not run on SQLite."""
    from neutron.db.migration.models import head
    from sqlalchemy import create_engine

    engine = create_engine(f"sqlite:///{state}/neutron.db")
    head.get_metadata().create_all(engine)
    engine.dispose()


main(Path(sys.argv[1]), int(sys.argv[2]))
