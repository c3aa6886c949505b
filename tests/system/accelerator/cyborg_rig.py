"""A real Cyborg in one process (API, conductor, and the agent of a host with its fake devices), on SQLite.

usage: .venv-cyborg/bin/python cyborg_rig.py STATE PORT HOST

It uses the Identity and Placement of OS_AUTH_URL and the other OS_* variables. Cyborg's own command creates the tables
(its migrations do not run on SQLite), and messages between its parts stay in memory; everything else is as installed.
Its API does not ask Keystone for the caller: every caller is admin. It is ready when ``/v2`` answers; SIGTERM stops it.
"""

import os
import sys
import warnings
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

warnings.simplefilter("ignore")

CONFIGURATION = """\
[DEFAULT]
host = {host}
transport_url = fake://
log_file = {state}/cyborg.log
[agent]
resource_provider_name = {host}
enabled_drivers = fake_driver
[database]
connection = sqlite:///{state}/cyborg.db
[api]
api_paste_config = {state}/api-paste.ini
public_endpoint = http://127.0.0.1:{port}
"""

IDENTITY = """\
[{section}]
auth_type = password
auth_url = {OS_AUTH_URL}
username = {OS_USERNAME}
password = {OS_PASSWORD}
project_name = {OS_PROJECT_NAME}
user_domain_id = default
project_domain_id = default
region_name = RegionOne
"""

#: Cyborg's own application, without the filter that asks Keystone about the caller.
PASTE = """\
[pipeline:main]
pipeline = request_id api_v2
[app:api_v2]
paste.app_factory = cyborg.api.app:app_factory
[filter:request_id]
paste.filter_factory = oslo_middleware:RequestId.factory
"""


class EverybodyIsAdmin:
    def __init__(self, app) -> None:
        self._app = app

    def __call__(self, environ, start_response):
        environ |= {"HTTP_X_ROLES": "admin", "HTTP_X_USER_ID": "admin", "HTTP_X_PROJECT_ID": "admin"}
        # its links have the prefix under which a web server mounts it
        environ["PATH_INFO"] = environ["PATH_INFO"].removeprefix("/accelerator") or "/"
        return self._app(environ, start_response)


class Quiet(WSGIRequestHandler):
    def log_message(self, *args) -> None:
        pass


def write_configuration(state: Path, port: str, host: str) -> Path:
    state.mkdir(parents=True, exist_ok=True)
    (state / "api-paste.ini").write_text(PASTE)
    path = state / "cyborg.conf"
    services = "".join(IDENTITY.format(section=name, **os.environ) for name in ("placement", "nova", "glance"))
    path.write_text(CONFIGURATION.format(state=state, port=port, host=host) + services)
    return path


def main() -> None:
    state, port, host = sys.argv[1:]
    path = write_configuration(Path(state), port, host)

    from cyborg import context
    from cyborg.api import app
    from cyborg.common import constants, service
    from cyborg.db import migration

    service.prepare_service(["cyborg", "--config-file", str(path)])
    migration.create_schema()
    for kind, topic in (("conductor", constants.CONDUCTOR_TOPIC), ("agent", constants.AGENT_TOPIC)):
        part = service.RPCService(f"cyborg.{kind}.manager", f"{kind.capitalize()}Manager", topic)
        part.start()
    # What Cyborg's timer does once a minute.
    part.manager.update_available_resource(context.get_admin_context())
    with make_server("127.0.0.1", int(port), EverybodyIsAdmin(app.load_app()), WSGIServer, Quiet) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
