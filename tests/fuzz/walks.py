"""Settings for random requests from an OpenAPI document: their number, and the limits of one request.

``MOORAGE_FUZZ`` is the number of requests per test; if it is set, requests differ from run to run.
"""

import gc
import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, settings

#: CPU seconds that one request may take: ten times as much as the slowest one takes.
CPU_S = 0.5

Answer = TypeVar("Answer")


def walk_of(requests: int) -> settings:
    """`requests`: their number unless ``MOORAGE_FUZZ`` sets it."""
    return settings(
        max_examples=int(os.environ.get("MOORAGE_FUZZ", requests)),
        deadline=None,
        # The result of a request depends on earlier ones, so a failing request is printed, not shrunk.
        phases=[Phase.generate],
        derandomize="MOORAGE_FUZZ" not in os.environ,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def can_be_sent(case: Any) -> bool:
    """The client of schemathesis refuses a question mark in the path, which generated text may contain."""
    return "?" not in case.formatted_path


def timed(call: Callable[[], Answer]) -> tuple[Answer, float]:
    """The answer of `call`, and the CPU seconds that it took in this thread.

    Garbage collection is off meanwhile: a full collection visits the objects of thousands of earlier tests in this
    process.
    """
    gc.disable()
    try:
        started = time.thread_time()
        answer = call()
        return answer, time.thread_time() - started
    finally:
        gc.enable()
