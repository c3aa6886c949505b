"""Decodes and checks the parameters of `plug`, before any image is looked up or any device is accessed (R21). Pure.

Spec: docs/evidence/specs/accelerator-attach.md
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from moorage.accelerator.model.errors import BadRequest
from moorage.accelerator.model.profile import MAX_CHARACTERS
from moorage.core.ids import is_uuid


@dataclass(frozen=True, slots=True)
class PlugRequest:
    instance_uuid: str
    instance_name: str
    project_id: str
    image_id: str  #: of the server, not of a bitstream
    selected: Mapping[str, tuple[str, ...]]  #: resource providers by group suffix
    everywhere: str  #: the one provider for all groups, if the caller named only one
    extra_specs: Mapping[str, str]
    user_id: str = ""  #: for the history of devices

    @property
    def digest(self) -> str:
        """Equal for equal requests, independent of the order of keys (A9)."""
        encoded = msgspec.json.encode([self.everywhere, self.selected, self.extra_specs], order="deterministic")
        return hashlib.sha256(encoded).hexdigest()

    def providers_of(self, suffix: str) -> tuple[str, ...]:
        if self.everywhere:
            return (self.everywhere,)
        if suffix not in self.selected:
            known = ", ".join(repr(name) for name in sorted(self.selected)) or "none"
            raise BadRequest(f"no resource provider was selected for group {suffix!r}, only for groups {known}")
        return self.selected[suffix]


def decode_plug(instance_info: object, selected_rp: object, extra_specs: object) -> PlugRequest:
    """`instance_info` has uuid, name, project_id, image_id (``image_uuid`` and ``tenant_id`` are accepted, too), and
    optionally user_id.

    `selected_rp` is ``{"uuid": <rp>}`` or ``{<group suffix>: [<rp>, ...]}`` (A5).
    """
    info = _check_mapping("instance_info", instance_info)
    specs = _check_mapping("flavor_extra_specs", extra_specs)
    everywhere, selected = _decode_selection(_check_mapping("selected_rp", selected_rp))
    return PlugRequest(
        instance_uuid=instance_uuid_of(info),
        instance_name=_text_field(info, "name"),
        project_id=_text_field(info, "project_id", "tenant_id"),
        image_id=_text_field(info, "image_id", "image_uuid"),
        selected=selected,
        everywhere=everywhere,
        extra_specs={str(key): str(value) for key, value in specs.items()},
        user_id=_text_field(info, "user_id"),
    )


def instance_uuid_of(instance_info: object) -> str:
    text = _text_field(_check_mapping("instance_info", instance_info), "uuid", "instance_uuid")
    if not is_uuid(text):
        raise BadRequest(f"instance_info must have the instance's uuid, not {text!r}")
    return text.lower()


def instance_name_of(instance_info: object) -> str:
    return _text_field(_check_mapping("instance_info", instance_info), "name")


def instance_in_logs(instance_info: object) -> tuple[str, str]:
    """The instance's (uuid, name) for a log; ``?`` for a part that is missing or cannot be read."""
    try:
        info = _check_mapping("instance_info", instance_info)
        return _text_field(info, "uuid", "instance_uuid") or "?", _text_field(info, "name") or "?"
    except BadRequest:
        return "?", "?"


def _check_mapping(name: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise BadRequest(f"{name} must be a mapping, not {type(value).__name__}")
    return value


def _text_field(info: Mapping[str, object], *names: str) -> str:
    for name in names:
        if (value := info.get(name)) is not None:
            if not isinstance(value, str):
                raise BadRequest(f"{name} in instance_info must be text, not {type(value).__name__}")
            if len(value) > MAX_CHARACTERS or "\0" in value:
                raise BadRequest(f"{name} in instance_info may have at most {MAX_CHARACTERS} characters and no NUL")
            return value
    return ""


def _decode_selection(chosen: Mapping[str, object]) -> tuple[str, dict[str, tuple[str, ...]]]:
    if not chosen:
        raise BadRequest("selected_rp names no resource provider")
    if isinstance(one := chosen.get("uuid"), str):
        return _decode_provider(one), {}
    selected = {}
    for suffix, providers in chosen.items():
        several = [providers] if isinstance(providers, str) else providers
        if not isinstance(several, list | tuple) or not several:
            raise BadRequest(f"selected_rp[{suffix!r}] must be a list of resource provider uuids")
        selected[str(suffix)] = tuple(_decode_provider(one) for one in several)
    return "", selected


def _decode_provider(text: object) -> str:
    if not isinstance(text, str) or not is_uuid(text):
        raise BadRequest(f"{text!r} in selected_rp is not the uuid of a resource provider")
    return text.lower()
