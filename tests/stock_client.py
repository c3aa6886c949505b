"""Runs commands of the shell in the module named, given as JSON on standard input, in this process; run by .venv-clients.

Not a test: `processes.openstack` starts it. It changes nothing about the client.
"""

import contextlib
import importlib
import io
import json
import sys
import warnings

warnings.simplefilter("ignore")


def main() -> None:
    shell = importlib.import_module(sys.argv[1])  # after the warnings were turned off
    answers = []
    for command in json.load(sys.stdin):
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = shell.main(command)
            except SystemExit as ended:
                status = ended.code
        out.flush()
        answers.append({"status": int(status or 0), "out": out.buffer.getvalue().decode(), "err": err.getvalue()})
    json.dump(answers, sys.stdout)


main()
