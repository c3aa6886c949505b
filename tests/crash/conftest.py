"""Database servers that tests may kill: one of each kind per session, empty for each module that uses it."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.crash.databases import DatabaseServer, database_server


@pytest.fixture(scope="session")
def private_servers() -> Iterator[Callable[[str], DatabaseServer]]:
    with contextlib.ExitStack() as stack:
        running: dict[str, DatabaseServer] = {}

        def server(kind: str) -> DatabaseServer:
            if kind not in running:
                running[kind] = stack.enter_context(database_server(kind, max_connections=30))
            elif running[kind].has_ended():  # the previous test has failed
                running[kind].start()
            return running[kind]

        yield server


@pytest.fixture(scope="module")
def private_server(private_servers) -> Callable[[str], DatabaseServer]:
    """`private_server("postgresql")`: running, and empty."""

    def server(kind: str) -> DatabaseServer:
        private = private_servers(kind)
        private.wait()
        private.empty()
        return private

    return server
