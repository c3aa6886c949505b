"""Jobs of the accelerator service for this host: bind and let go of accelerator requests, program, heed an operator.

Spec: docs/evidence/specs/accelerator-attach.md
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from moorage.agent.jobs.job_runner import Result
from moorage.agent.jobs.server_build import meanwhile
from moorage.core.errors import MoorageError


class AcceleratorAgentApi(Protocol):
    """The host's accelerator agent."""

    def bind(self, order: Mapping[str, Any]) -> Mapping[str, str]:
        """By accelerator request the address of what was attached for it."""
        ...

    def unbind(self, instance_uuid: str) -> Mapping[str, Mapping[str, str]]:
        """How the handles of the deployables are that it had something of."""
        ...

    def states(self, pci_ids: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """The same of the deployables that have these handles."""
        ...

    def program(self, order: Mapping[str, Any]) -> str | None:
        """The image that the region carries now; None: it is blank."""
        ...

    def heed(self, wishes: Mapping[str, Any]) -> None:
        """All that an operator wants of this host's devices, instead of what he wanted before."""
        ...


class AcceleratorRunner:
    def __init__(self, accelerators: AcceleratorAgentApi, *, keep_alive_period_s: float) -> None:
        self._accelerators = accelerators
        self._period_s = keep_alive_period_s
        self._kinds: dict[str, Callable[[Mapping[str, Any]], Result]] = {
            "bind": self._bind,
            "unbind": lambda payload: {"states": accelerators.unbind(payload["instance_uuid"])},
            "program": lambda payload: {"bitstream_id": accelerators.program(payload)},
            "wishes": self._heed,
        }

    def run(self, kind: str, payload: Mapping[str, Any], keep_alive: Callable[[], None]) -> Result:
        """Raises `MoorageError` with the sentence for the report."""
        if kind not in self._kinds:
            raise MoorageError(
                f"this agent has no job of kind {kind!r}; it has {', '.join(self._kinds)}. Upgrade the agent",
                code="agent.kind",
            )
        return meanwhile(lambda: self._kinds[kind](payload), keep_alive, self._period_s)

    def _bind(self, order: Mapping[str, Any]) -> Result:
        handles = dict(self._accelerators.bind(order))
        return {"handles": handles, "states": self._accelerators.states(handles.values())}

    def _heed(self, wishes: Mapping[str, Any]) -> Result:
        self._accelerators.heed(wishes)
        return {}
