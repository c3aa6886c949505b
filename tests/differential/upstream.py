"""The real Placement on a pipe, in .venv-conformance, on a SQLite file in DIRECTORY or on a database.

Each line of JSON on standard input is a request (`sides.Asked`), each line of output its answer (`sides.Answered`). The
line ``"ghosts"`` removes consumers without allocations and answers with their uuids. The application is called in this
process, because the comparison is about Placement, not about a front end.

usage: python -W ignore -m tests.differential.upstream DIRECTORY [DATABASE_URL]
"""

import io
import json
import os
import sys
from pathlib import Path
from urllib.parse import unquote_to_bytes

from placement import db_api, wsgi
from placement.db.sqlalchemy import models
from sqlalchemy import delete, select

from tests.conformance.upstream_server import write_configuration
from tests.conformance.variants import VARIANTS


def environ_of(asked: dict) -> dict:
    path, _, query = asked["target"].partition("?")
    body = (asked["body"] or "").encode()
    environ = {
        "REQUEST_METHOD": asked["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": query,
        "SERVER_NAME": "placement.example",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "placement.example",
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": False,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    if body:
        environ["CONTENT_LENGTH"] = str(len(body))
    for name, value in asked["headers"].items():
        key = name.upper().replace("-", "_")
        environ[key if key == "CONTENT_TYPE" else f"HTTP_{key}"] = value
    return environ


def answer(app, asked: dict) -> dict:
    started = {}

    def start_response(status, headers, _error=None):
        started.update(status=int(status.split()[0]), headers={name.lower(): value for name, value in headers})

    chunks = app(environ_of(asked), start_response)
    body = b"".join(chunks).decode()
    return {"status": started["status"], "headers": started["headers"], "body": body}


def remove_ghosts() -> list[str]:
    consumers, allocations = models.Consumer.__table__, models.Allocation.__table__
    nothing_held = consumers.c.uuid.not_in(select(allocations.c.consumer_id))
    with db_api.get_placement_engine().begin() as connection:
        ghosts = list(connection.execute(select(consumers.c.uuid).where(nothing_held)).scalars())
        connection.execute(delete(consumers).where(nothing_held))
    return ghosts


def main() -> None:
    directory = Path(sys.argv[1])
    write_configuration(VARIANTS["default"], directory, *sys.argv[2:3])
    os.environ["OS_PLACEMENT_CONFIG_DIR"] = str(directory)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    app = wsgi.init_application()
    for line in sys.stdin:
        asked = json.loads(line)
        answered = remove_ghosts() if asked == "ghosts" else answer(app, asked)
        print(json.dumps(answered), file=answers, flush=True)


if __name__ == "__main__":
    main()
