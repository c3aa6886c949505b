"""With what a command ends, so that scripts need not read what it prints. The table of the reference is made from here."""

from collections.abc import Mapping
from enum import IntEnum


class Exit(IntEnum):
    #: It is done, or nothing is wrong.
    DONE = 0
    #: An error of ours: one line on standard error says what, where and what to do. Or, of a command that looks for
    #: something: it has found something.
    REFUSED = 1
    #: Wrong usage: an option, an argument or a command that there is not.
    USAGE = 2
    #: Something does not work now.
    BROKEN = 3


#: What holds for every command.
EVERYWHERE: Mapping[Exit, str] = {
    Exit.DONE: "done; nothing is wrong",
    Exit.REFUSED: "refused: one line on standard error says what, where and what to do; also after Ctrl-C",
    Exit.USAGE: "wrong usage: an option, an argument or a command that there is not",
}

#: Command, or group of commands -> what it means by a code, where that is more.
MEANINGS: Mapping[str, Mapping[int, str]] = {
    "audit": {1: "something is wrong, or still is after --fix", 2: "it could not be found out, or wrong usage"},
    "compute migrate-flavors": {1: "some nodes need you first, or refused"},
    "doctor": {1: "warnings: it works, and something wants to be looked at", 3: "something does not work"},
    "provider-config": {1: "the files are refused", 2: "it could not be found out or done, or wrong usage"},
    "status": {
        1: "all answer, and something lags: a host is down, a task is late, a schema is behind",
        3: "a service or a database does not answer",
    },
}
