"""What every page of the dashboard is given: the ways to the services, who signs people in, and the templates."""

from collections.abc import Callable
from dataclasses import dataclass

from moorage.core.caller import Caller
from moorage.core.clock import Clock
from moorage.core.errors import Unauthorized
from moorage.dashboard.clients import ServiceAccess
from moorage.dashboard.rendering import Templates
from moorage.dashboard.signing_in import Person, ProjectChoice, SigningIn
from moorage.dashboard.static import StaticFiles


@dataclass(frozen=True)
class Dashboard:
    """`signing_in` is None where nobody signs in and everybody on this machine is admin."""

    ways: ServiceAccess
    signing_in: SigningIn | None
    templates: Templates
    files: StaticFiles
    clock: Clock
    new_seed: Callable[[], str]

    def person(self, token: str | None, caller: Caller) -> Person | None:
        """Who looks at a page; None where they must sign in first.

        `caller` is what the kernel found out itself, which counts only where there are no tokens. Raises
        `Unauthorized` for a token that is over.
        """
        if self.signing_in is not None:
            return self.signing_in.whose(token) if token else None
        if not caller.user_id:
            raise Unauthorized("without authentication only the machine of the plane itself is served")
        here = ProjectChoice(caller.project_id, caller.project_name)
        return Person(caller.user_name, here, caller.roles, (here,))
