"""A real Glance in one process, on SQLite and files; runs in .venv-glance.

usage: glance_rig.py STATE PORT [KEYSTONE_URL USER PASSWORD PROJECT]

Without a Keystone every caller is admin. It is ready when ``/versions`` answers.
"""

import os
import shutil
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

CONFIGURATION = """\
[DEFAULT]
log_file = {state}/glance.log
enabled_backends = here:file
enabled_import_methods = []
worker_self_reference_url = http://127.0.0.1:{port}
[database]
connection = sqlite:///{state}/glance.db
[glance_store]
default_backend = here
[here]
filesystem_store_datadir = {state}/images
[os_glance_staging_store]
filesystem_store_datadir = {state}/staging
[os_glance_tasks_store]
filesystem_store_datadir = {state}/tasks
"""

#: An unauthenticated caller has no roles in Glance, so all of Glance's default policies would refuse it.
WITHOUT_KEYSTONE = """\
[oslo_policy]
policy_file = {state}/policy.yaml
[paste_deploy]
config_file = {state}/glance-api-paste.ini
"""

WITH_KEYSTONE = """\
[paste_deploy]
config_file = {state}/glance-api-paste.ini
flavor = keystone
[keystone_authtoken]
auth_url = {keystone}
www_authenticate_uri = {keystone}
auth_type = password
username = {user}
password = {password}
project_name = {project}
user_domain_id = default
project_domain_id = default
service_token_roles_required = true
"""


def sync_database(state: Path) -> None:
    """In a fork: Glance's configuration object can be filled once per process."""
    from glance.cmd import manage

    child = os.fork()
    if child == 0:
        sys.argv = ["glance-manage", "--config-file", str(state / "glance-api.conf"), "db_sync"]
        try:
            manage.main()
        except SystemExit as ended:
            os._exit(int(ended.code or 0))
        except BaseException as error:  # noqa: BLE001 - the child must not return into the parent's code
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit("glance-manage db_sync failed")


def main(state: Path, port: int, keystone: str = "", user: str = "", password: str = "", project: str = "") -> None:
    for name in ("images", "staging", "tasks"):
        (state / name).mkdir(parents=True)
    shutil.copy(Path(sys.prefix) / "etc" / "glance" / "glance-api-paste.ini", state)
    if not keystone:  # Glance reads its configuration file by itself
        (state / "policy.yaml").write_text('"context_is_admin": ""\n')
    text = CONFIGURATION + (WITH_KEYSTONE if keystone else WITHOUT_KEYSTONE)
    text = text.format(state=state, port=port, keystone=keystone, user=user, password=password, project=project)
    (state / "glance-api.conf").write_text(text)
    os.environ["OS_GLANCE_CONFIG_DIR"] = str(state)
    sync_database(state)
    sys.argv = ["glance-api"]  # its WSGI module reads the command line
    from glance.wsgi.api import application
    from werkzeug.serving import run_simple

    run_simple("127.0.0.1", port, application, threaded=True)


main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
