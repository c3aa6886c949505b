"""A real Keystone in one process, on SQLite; runs in .venv-keystone. usage: rig.py STATE PORT PASSWORD

It is ready when ``/v3`` answers. ``GET /rig/expired`` returns the project-scoped token in ``X-Subject-Token`` with an
expiry of a minute ago.
"""

import os
import sys
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

warnings.simplefilter("ignore")

CONFIGURATION = """\
[DEFAULT]
log_file = {state}/keystone.log
[database]
connection = sqlite:///{state}/keystone.db
[fernet_tokens]
key_repository = {state}/fernet-keys
[credential]
key_repository = {state}/credential-keys
[identity]
password_hash_rounds = 4
[cache]
enabled = false
[token]
allow_expired_window = 3600
"""


def manage(file: Path, *arguments: str) -> None:
    """One keystone-manage command, in a fork: its configuration object can be filled once per process."""
    from keystone.cmd import manage as command

    child = os.fork()
    if child == 0:
        sys.argv = ["keystone-manage", "--config-file", str(file), *arguments]
        try:
            command.main()
        except SystemExit as ended:
            os._exit(int(ended.code or 0))
        except BaseException as error:  # noqa: BLE001 - the child must not return into the parent's code
            print(arguments[0], repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(f"keystone-manage {arguments[0]} failed")


def expired(token: str) -> str:
    from keystone.token.token_formatters import ProjectScopedPayload, TokenFormatter

    formatter = TokenFormatter()
    user_id, methods, audit_ids, _system, _domain, project_id, *_rest = formatter.validate_token(token)
    ended = datetime.now(UTC) - timedelta(minutes=1)
    return formatter.create_token(
        user_id,
        ended.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        audit_ids,
        ProjectScopedPayload,
        methods=methods,
        project_id=project_id,
    )


def main(state: Path, port: int, password: str) -> None:
    state.mkdir(parents=True)
    file = state / "keystone.conf"
    file.write_text(CONFIGURATION.format(state=state))
    os.environ["OS_KEYSTONE_CONFIG_DIR"] = str(state)
    os.environ["OS_KEYSTONE_CONFIG_FILES"] = file.name
    url = f"http://127.0.0.1:{port}/v3"
    manage(file, "db_sync")
    for step in ("fernet_setup", "credential_setup"):
        manage(file, step, "--keystone-user", str(os.getuid()), "--keystone-group", str(os.getgid()))
    urls = [word for kind in ("admin", "public", "internal") for word in (f"--bootstrap-{kind}-url", url)]
    manage(file, "bootstrap", "--bootstrap-password", password, "--bootstrap-region-id", "RegionOne", *urls)
    sys.argv = ["keystone"]  # its WSGI module reads the command line
    from keystone.wsgi.api import application
    from werkzeug.serving import run_simple

    def app(environ, start_response):
        if environ["PATH_INFO"] != "/rig/expired":
            return application(environ, start_response)
        start_response("200 OK", [("content-type", "text/plain")])
        return [expired(environ["HTTP_X_SUBJECT_TOKEN"]).encode()]

    run_simple("127.0.0.1", port, app, threaded=True)


main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
