"""Parts of a real Nova that are not console scripts of their own; runs in .venv-nova.

usage: rig.py prepare CONFIGURATION CELL0   fills its databases; CELL0 is the URL of the database for unplaced servers
       rig.py api CONFIGURATION PORT        the Compute API, until it is stopped
       rig.py network PORT                  a Network API without networks, which Nova calls for each build
"""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

#: The collections of the Network API; each is empty.
NOTHING_OF = {"ports", "networks", "subnets", "floatingips", "security-groups", "extensions", "routers", "segments"}


def prepare(configuration: Path, cell0: str) -> None:
    manage = [Path(sys.executable).with_name("nova-manage"), "--config-file", configuration]
    for step in (
        ["api_db", "sync"],
        ["cell_v2", "map_cell0", "--database_connection", cell0],
        ["db", "sync"],
        ["cell_v2", "create_cell", "--name", "cell1"],
    ):
        done = subprocess.run([*manage, *step], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"nova-manage {' '.join(step)} failed:\n{done.stdout}{done.stderr}")


def api(configuration: Path, port: int) -> None:
    os.environ["OS_NOVA_CONFIG_DIR"] = str(configuration.parent)
    os.environ["OS_NOVA_CONFIG_FILES"] = f"api-paste.ini;{configuration.name}"
    sys.argv = ["nova-api"]  # its WSGI module reads the command line
    from nova.wsgi.osapi_compute import application

    serve(port, application)


def network(port: int) -> None:
    def application(environ, start_response):
        parts = environ["PATH_INFO"].strip("/").split("/")
        name = parts[1].removesuffix(".json") if len(parts) > 1 else ""
        status, body = "200 OK", {"versions": [{"id": "v2.0", "status": "CURRENT", "links": []}]}
        if name in NOTHING_OF and len(parts) == 2:
            body = {name.replace("-", "_"): []}
        elif name == "quotas":
            body = {"quota": {"port": -1, "network": -1, "security_group": -1}}
        elif name:
            status, body = "404 Not Found", {"NeutronError": {"type": "NotFound", "message": name, "detail": ""}}
        start_response(status, [("Content-Type", "application/json")])
        return [json.dumps(body).encode()]

    serve(port, application)


def serve(port: int, application) -> None:
    from werkzeug.serving import run_simple

    run_simple("127.0.0.1", port, application, threaded=True)


match sys.argv[1:]:
    case ["prepare", configuration, cell0]:
        prepare(Path(configuration), cell0)
    case ["api", configuration, port]:
        api(Path(configuration), int(port))
    case ["network", port]:
        network(int(port))
    case _:
        sys.exit(__doc__)
