"""Exit codes of the commands, for scripts. The reference page is generated from these tables."""

from collections.abc import Mapping
from enum import IntEnum


class Exit(IntEnum):
    #: Success, or nothing is wrong.
    DONE = 0
    #: A Moorage error: one line on standard error says what happened, where, and what to do. For a command that looks
    #: for problems: it has found some.
    REFUSED = 1
    #: Wrong usage: an unknown option, argument or command.
    USAGE = 2
    #: Something does not work.
    BROKEN = 3


#: Meanings that apply to every command.
EVERYWHERE: Mapping[Exit, str] = {
    Exit.DONE: "success; nothing is wrong",
    Exit.REFUSED: "error: one line on standard error says what, where and what to do; also after Ctrl-C",
    Exit.USAGE: "wrong usage: an unknown option, argument or command",
}

#: {command or group of commands: {exit code: additional meaning}}
MEANINGS: Mapping[str, Mapping[int, str]] = {
    "agent join": {3: "this machine lacks something that the agent needs; nothing was written"},
    "audit": {1: "findings, or findings left after --fix", 2: "the audit could not run, or wrong usage"},
    "compute migrate-flavors": {1: "some nodes need manual work first, or error"},
    "doctor": {1: "warnings: everything works, but something needs attention", 3: "something does not work"},
    "provider-config": {1: "the files are rejected", 2: "the command could not run, or wrong usage"},
    "status": {
        1: "everything answers, but a host is down, a task is late or a schema is behind",
        3: "a service or a database does not answer",
    },
}
