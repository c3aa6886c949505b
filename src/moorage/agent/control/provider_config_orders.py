"""Orders about the provider configuration of this host that came over compute's API.

They are carried out as the commands of this machine would: checked, previewed or taken, with the files put back where they are
refused. A second run of an order leaves things as the first did: the same files are in the directory already.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from moorage.agent.control.control_api import HostControl, outcome, shown
from moorage.core.clock import Clock
from moorage.core.errors import Forbidden, Gone, Invalid

Result = dict[str, Any]


class ProviderConfigOrders:
    def __init__(self, control: HostControl, clock: Clock, *, may_apply: bool) -> None:
        """`may_apply`: whether files of this host may be changed from afar."""
        self._control = control
        self._clock = clock
        self._may_apply = may_apply

    def run(self, payload: Mapping[str, Any], _keep_alive: Callable[[], None]) -> Result:
        """Raises `MoorageError` with the sentence for the report; the files are as they were then."""
        if self._clock.now() > datetime.fromisoformat(payload["expires_at"]):
            raise Gone(
                f"this order waited for host {self._control.host} until {payload['expires_at']} and is not carried out "
                "any more; give it again",
                code="agent.order_is_old",
            )
        files = {name: text.encode() for name, text in payload["files"].items()}
        done = self._done(payload["do"], files)
        return {"state": shown(self._control), "outcome": done}

    def _done(self, what: str, files: Mapping[str, bytes]) -> Mapping[str, object] | None:
        keeper = self._control.keeper
        match what:
            case "show":
                return None
            case "plan":
                return outcome(self._control, keeper.preview(files))
            case "apply":
                if not self._may_apply:
                    raise Forbidden(
                        f"the files of host {self._control.host} are changed on the host only "
                        "([compute] provider_config_remote_apply is false there): moorage provider-config apply",
                        code="agent.apply_from_afar",
                    )
                return outcome(self._control, keeper.replace(files))
        raise Invalid(f"this agent knows no order {what!r}; upgrade it", code="agent.kind")
