"""What all types do with requests and updates."""

from collections.abc import Collection
from typing import TypeVar

from moorage.core.errors import Invalid
from moorage.reservation.model.reservation_requests import ReservationChange, ReservationRequest

R = TypeVar("R")


def expect(request: ReservationRequest, kind: type[R]) -> R:
    """`request`, which is of this class: a reservation's type tells."""
    if not isinstance(request, kind):
        raise TypeError(f"{request} is no {kind.__name__}")
    return request


def check_known(change: ReservationChange, changeable: Collection[str]) -> None:
    if unknown := sorted(change.given().keys() - set(changeable)):
        raise Invalid(
            f"Unknown parameter {', '.join(unknown)}: such a reservation can change in {', '.join(changeable)}"
        )
