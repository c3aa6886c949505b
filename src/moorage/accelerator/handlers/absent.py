"""What the peer has and this service has not yet: said honestly, with what to do instead."""

from moorage.accelerator.service import AcceleratorService
from moorage.core.errors import NotBuilt
from moorage.wire.call import Call, Reply


def binding(call: Call[AcceleratorService], **_names: str) -> Reply:
    raise NotBuilt(
        "Accelerator requests are made by the agents of this plane when a server's flavor asks for "
        "resources:CUSTOM_ACCELERATOR_<TYPE>; making, binding and deleting them by this API is not built yet."
    )


def administration(call: Call[AcceleratorService], **_names: str) -> Reply:
    raise NotBuilt(
        "Enabling, disabling and programming by this API is not built yet; regions are programmed when a server's "
        "flavor names a bitstream or function."
    )


def attributes(call: Call[AcceleratorService], **_names: str) -> Reply:
    raise NotBuilt("Attributes of deployables are only shown as their attributes_list; this API is not built yet.")
