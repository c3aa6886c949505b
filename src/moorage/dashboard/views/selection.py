"""Acting on several selected leases or servers: the kinds, their acts, and the words for them. Pure.

What an act does to a lease or a server is in `selected_leases` and `selected_servers`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

#: Maximum number of leases or servers in one form. The service takes them one after another.
MAX_SELECTED = 50


@dataclass(frozen=True, slots=True)
class Act:
    """`button`, `done`: words for a button and a result. `effect`: what happens. `keeps`: whether there is a page of it
    afterwards.
    """

    choice: str  #: the key of `SelectableKind.choices` that leads to it
    button: str
    done: str
    effect: str
    keeps: bool = False


@dataclass(frozen=True, slots=True)
class SelectableKind(Generic[T]):
    """A kind of objects of which several can be selected in a list.

    `acts`: {name of the form field: act}. A confirmed form says what each object was confirmed for, so that nothing
    else happens to one whose status has changed since. `choices`: {value of ``do``: (title of the page, answer if no
    selected object allows it)}. `act_on`: returns (key of `acts`, what happens), or ("", why nothing happens), for an
    object and a key of `choices`. `template`: of the page that asks for confirmation.
    """

    one: str
    many: str
    service: str
    acts: Mapping[str, Act]
    choices: Mapping[str, tuple[str, str]]
    act_on: Callable[[T, str], tuple[str, str]]
    status: Callable[[T], str]
    template: str

    def words(self, number: int) -> str:
        return self.one if number == 1 else self.many


def why_not_selected(kind: SelectableKind[T], number: int) -> str:
    """Why a form with this number of objects is refused; empty if it is not."""
    if not number:
        return f"No {kind.one} is selected. Go back to the list and select the {kind.many} first."
    if number > MAX_SELECTED:
        return f"{number:,} {kind.many} are selected. At most {MAX_SELECTED} can be changed at once; select fewer."
    return ""


def button_text(kind: SelectableKind[T], acts: Iterable[str]) -> str:
    """``End 3 leases``, ``Cancel 2 and delete 1 lease``. `acts`: a key of `kind.acts` for each object."""
    counts = sorted(Counter(kind.acts[act].button for act in acts).items())
    verbs = " and ".join(f"{verb} {number}" for verb, number in counts).capitalize()
    return f"{verbs} {kind.words(counts[-1][1])}"


def done_text(kind: SelectableKind[T], acts: Iterable[str], refused: int) -> str:
    """``3 leases ended``, ``1 lease cancelled, 2 deleted, 1 refused``"""
    counts = sorted(Counter(kind.acts[act].done for act in acts).items())
    if not counts:
        return f"No {kind.one} was changed"
    (done, number), *others = counts
    words = [f"{number} {kind.words(number)} {done}", *(f"{number} {done}" for done, number in others)]
    return ", ".join([*words, f"{refused} refused"] if refused else words)
