"""What a check has found: how bad it is, what, where, and what to do."""

from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """In this order: the worst one decides."""

    FINE = 0
    WARNING = 1
    BROKEN = 2


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """`check` is a word for programs; `remedy` is empty where nothing is to be done."""

    severity: Severity
    check: str
    what: str
    where: str = ""
    remedy: str = ""


def fine(check: str, what: str, where: object = "") -> CheckFinding:
    return CheckFinding(Severity.FINE, check, what, str(where))


def warning(check: str, what: str, where: object, remedy: str) -> CheckFinding:
    return CheckFinding(Severity.WARNING, check, what, str(where), remedy)


def broken(check: str, what: str, where: object, remedy: str) -> CheckFinding:
    return CheckFinding(Severity.BROKEN, check, what, str(where), remedy)
