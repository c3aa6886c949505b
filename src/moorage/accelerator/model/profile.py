"""Device profiles: the anonymous profile in a flavor's extra specs, and the named ones of the Accelerator API.

Keys of one group share a suffix, as in Nova's granular requests::

    resources_A:CUSTOM_ACCELERATOR_FPGA = 1       trait_A:CUSTOM_FPGA_INTEL_REGION_<ID> = required
    bitstream_A:<uuid> = required                 (also ``bitstream_A = <uuid>``, ``accel_A:bitstream_id = <uuid>``)
    function_A:<uuid or trait> = required         (also ``function_A = <uuid>``, ``accel_A:function_id = <uuid>``)
    function_name_A:<name> = required             (also ``function_name_A = <name>``, ``accel_A:function_name = ...``)

``accel_A:bitstream_signature = required`` requires that the bitstream is signed; without a suffix, it does so for all
groups.

Keys without a suffix form one group.

In a profile of the Accelerator API, group keys are ``resources:<class>``, ``trait:<trait>`` and ``accel:<key>``, as in
Cyborg; unknown ``accel:`` keys are accepted, as in Cyborg. `check_profile` refuses two things that Cyborg accepts:
amounts below 1, and groups without resources. Pure: no I/O here.
Spec: docs/evidence/specs/accelerator-attach.md
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from moorage.accelerator.model.devices import DeviceType
from moorage.accelerator.model.errors import BadRequest
from moorage.accelerator.model.naming import OWNER_TRAIT, TraitKind, canonical_id, parse_trait, type_of_class
from moorage.core.errors import Invalid
from moorage.core.names import is_custom

_SUFFIX = r"(?P<suffix>|[A-Za-z0-9_-]{1,64})"


#: ``function_name`` comes before ``function``; otherwise ``_name`` would be parsed as a suffix.
_KEY = re.compile(
    rf"(?P<kind>resources|trait|accel|bitstream|function_name|function){_SUFFIX}(?::(?P<name>.+))?\Z", re.DOTALL
)


_PROGRAM_KIND_BY_ACCEL_KEY = {
    "bitstream_id": "bitstream",
    "function_id": "function",
    "function_name": "function_name",
}


_TRUE_VALUES = {"required", "true", "1", "yes"}


_SIGNATURE = "bitstream_signature"


#: Placement's limit for an amount has this many digits.
_MAX_DIGITS = 10


#: Maximum length of an image property or an id.
MAX_CHARACTERS = 255


#: Each unit of a group becomes a request, which is a row; and no host has more units than this.
MAX_UNITS_PER_GROUP = 1000


STANDARD_CLASSES = frozenset({"FPGA", "GPU", "VGPU", "PGPU"})


_NAME = re.compile(r"[a-zA-Z0-9_-]{1,255}\Z")


@dataclass(frozen=True, slots=True)
class ProgramRequest:
    """The bitstream or function to program: exactly one field is set, or none for no request."""

    bitstream_id: str = ""
    function_id: str = ""
    function_name: str = ""

    def __bool__(self) -> bool:
        return bool(self.bitstream_id or self.function_id or self.function_name)

    def __str__(self) -> str:
        if self.bitstream_id:
            return f"bitstream {self.bitstream_id}"
        if self.function_id:
            return f"function {self.function_id}"
        return f"function {self.function_name!r}" if self.function_name else "nothing"


#: Begins the name of a key that requires one of several traits: ``trait:in:CUSTOM_A,CUSTOM_B = required``.
ANY_OF = "in:"


@dataclass(frozen=True, slots=True)
class ProfileGroup:
    """One request group that requests accelerators. `amounts` is by type: ``{"FPGA": 1}``."""

    suffix: str
    amounts: Mapping[str, int]
    required_traits: frozenset[str] = frozenset()
    wanted: ProgramRequest = ProgramRequest()
    signed: bool = False  #: whether a verified signature is required
    hinted: bool = False  #: whether `wanted` comes from the server's image (a hint)

    @property
    def is_open(self) -> bool:
        """Whether a hint of an image may choose the content: the group names no bitstream or function, and requires no
        function that is loaded already.
        """
        relies = any(functions_of(text) for text in self.required_traits)
        return DeviceType.FPGA in self.amounts and not self.wanted and not relies

    @property
    def label(self) -> str:
        return f"group {self.suffix!r}" if self.suffix else "the group without a suffix"


@dataclass(frozen=True, slots=True)
class Profile:
    """An anonymous device profile: the groups that request accelerators, sorted by suffix."""

    groups: tuple[ProfileGroup, ...]


@dataclass(slots=True)
class _GroupDraft:
    amounts: dict[str, int] = field(default_factory=dict)
    traits: set[str] = field(default_factory=set)
    wanted: dict[str, set[str]] = field(default_factory=dict)
    signed: bool = False


def refers_to_accelerators(extra_specs: Mapping[str, str]) -> bool:
    """Whether any ``resources<suffix>:`` names a class ``CUSTOM_ACCELERATOR_*`` with an amount other than 0.

    R15: plug and unplug are called only for such flavors.
    """
    return any(
        kind == "resources" and type_of_class(name) is not None and value.strip() != "0"
        for kind, _, name, value in _accelerator_entries(extra_specs)
    )


def from_extra_specs(extra_specs: Mapping[str, str]) -> Profile:
    """Raises `BadRequest` for invalid keys or combinations; ignores keys of other kinds (``hw:``, ``quota:``)."""
    drafts: dict[str, _GroupDraft] = {}
    for kind, suffix, name, value in _accelerator_entries(extra_specs):
        _add_entry(drafts.setdefault(suffix, _GroupDraft()), kind, name, value)
    with_devices = {suffix: draft for suffix, draft in drafts.items() if draft.amounts}
    if not with_devices:
        raise BadRequest("the flavor requests no accelerator: it has no extra spec resources:CUSTOM_ACCELERATOR_<TYPE>")
    _move_unsuffixed_programs(drafts, with_devices)
    everywhere = "" in drafts and drafts[""].signed
    groups = [_profile_group(suffix, with_devices[suffix], everywhere=everywhere) for suffix in sorted(with_devices)]
    if everywhere and not any(group.signed for group in groups):
        raise BadRequest(f"accel:{_SIGNATURE} is required, but no bitstream or function is named")
    return Profile(tuple(groups))


def apply_image_hints(profile: Profile, properties: Mapping[str, str]) -> Profile:
    """Add the hints of the server's own image: ``accel:bitstream_id``, ``accel:function_id`` or
    ``accel:function_name``, with the same meaning as in a flavor. A group of the flavor that names a bitstream or
    function is not changed (R18).
    """
    hints = {
        (kind, text.strip())
        for name, kind in _PROGRAM_KIND_BY_ACCEL_KEY.items()
        if (text := properties.get(f"accel:{name}", "")).strip()
    }
    openings = [group for group in profile.groups if group.is_open]
    if not hints or not openings:
        return profile
    if len(hints) > 1 or len(openings) > 1:
        what = " and ".join(f"{kind} {value}" for kind, value in sorted(hints))
        labels = ", ".join(group.label for group in openings)
        raise BadRequest(
            f"the server's image hints at {what}, for {labels}; exactly one hint for one group is possible: name it in "
            "the flavor or profile instead"
        )
    (opening,), ((kind, value),) = openings, hints
    signed = properties.get(f"accel:{_SIGNATURE}", "").strip().lower() in _TRUE_VALUES
    hinted = replace(opening, wanted=_program_request(kind, value), signed=opening.signed or signed, hinted=True)
    return Profile(tuple(hinted if group is opening else group for group in profile.groups))


def _accelerator_entries(extra_specs: Mapping[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """(kind, suffix, name after the colon, value) of each accelerator key."""
    for key, value in extra_specs.items():
        if match := _KEY.match(key):
            yield match["kind"], match["suffix"], match["name"] or "", str(value)


def _add_entry(draft: _GroupDraft, kind: str, name: str, value: str) -> None:
    match kind:
        case "resources":
            if (device_type := type_of_class(name)) is not None and (amount := _amount(name, value)):
                draft.amounts[device_type] = amount
        case "trait":
            if value.strip().lower() == "required":
                draft.traits.add(name)
        case "accel" if name == _SIGNATURE:
            if value.strip().lower() not in _TRUE_VALUES:
                raise BadRequest(f"accel:{_SIGNATURE} is {value!r}; set it to required, or leave it out")
            draft.signed = True
        case "accel":
            if wanted_kind := _PROGRAM_KIND_BY_ACCEL_KEY.get(name):
                draft.wanted.setdefault(wanted_kind, set()).add(value.strip())
        case _:
            if not name:
                draft.wanted.setdefault(kind, set()).add(value.strip())
            elif value.strip().lower() in _TRUE_VALUES:
                draft.wanted.setdefault(kind, set()).add(name.strip())


def _amount(name: str, value: str) -> int:
    if not value.strip().isdecimal() or len(value) > _MAX_DIGITS:
        raise BadRequest(f"the amount of {name} is {value[:MAX_CHARACTERS]!r}; it must be a whole number")
    return int(value)


def _move_unsuffixed_programs(drafts: Mapping[str, _GroupDraft], with_devices: Mapping[str, _GroupDraft]) -> None:
    """Move a bitstream or function from a group without devices to the only group with an FPGA, or with devices."""
    with_fpga = {suffix: draft for suffix, draft in with_devices.items() if DeviceType.FPGA in draft.amounts}
    eligible = with_fpga or with_devices
    for suffix, draft in drafts.items():
        if suffix in with_devices:
            continue
        if draft.signed and suffix:
            raise BadRequest(f"group {suffix!r} requires a signature but requests no accelerator")
        if not draft.wanted:
            continue
        if suffix:
            raise BadRequest(f"group {suffix!r} names a bitstream or function but requests no accelerator")
        if len(eligible) > 1:
            names = ", ".join(repr(name) for name in sorted(eligible))
            raise BadRequest(
                f"a bitstream or function without a suffix could belong to any of the groups {names}: "
                "give it the suffix of its group"
            )
        for kind, values in draft.wanted.items():
            next(iter(eligible.values())).wanted.setdefault(kind, set()).update(values)


def _profile_group(suffix: str, draft: _GroupDraft, *, everywhere: bool) -> ProfileGroup:
    """`everywhere`: a signature is required for every bitstream."""
    group = ProfileGroup(suffix, dict(sorted(draft.amounts.items())), frozenset(draft.traits))
    named = [(kind, value) for kind, values in sorted(draft.wanted.items()) for value in sorted(values)]
    if not named:
        if draft.signed and suffix:
            raise BadRequest(f"{group.label} requires a signature but names no bitstream or function")
        return group
    if len(named) > 1:
        raise BadRequest(
            f"{group.label} requests {' and '.join(f'{kind} {value}' for kind, value in named)}; a region can carry "
            "only one"
        )
    kind, value = named[0]
    return replace(group, wanted=_program_request(kind, value), signed=draft.signed or everywhere)


def _program_request(kind: str, value: str) -> ProgramRequest:
    if not value:
        raise BadRequest(f"the extra spec {kind} is empty; set it to the {kind.replace('_', ' ')}")
    if len(value) > MAX_CHARACTERS or not value.isprintable():
        raise BadRequest(
            f"the extra spec {kind} is {value[:MAX_CHARACTERS]!r}; at most {MAX_CHARACTERS} printable characters are "
            "allowed"
        )
    if kind == "bitstream":
        return ProgramRequest(bitstream_id=canonical_id(value))
    if kind == "function_name":
        return ProgramRequest(function_name=value)
    return ProgramRequest(function_id=function_id_of(value))


def alternatives(name: str) -> list[str]:
    """The traits of which a provider needs one: those after ``in:``, or the only one."""
    return name.removeprefix(ANY_OF).split(",") if name.startswith(ANY_OF) else [name]


def functions_of(name: str) -> list[str]:
    """Ids of the functions of which the required trait `name` needs one; empty if something else suffices."""
    traits = [parse_trait(one) for one in alternatives(name)]
    functions = [trait.id for trait in traits if trait is not None and trait.kind is TraitKind.FUNCTION]
    return functions if len(functions) == len(traits) else []


def function_id_of(text: str) -> str:
    """The canonical function id of `text`, which is an id in any spelling or the function's trait."""
    trait = parse_trait(text)
    return canonical_id(trait.id if trait else text)


@dataclass(frozen=True, slots=True)
class NewProfile:
    name: str
    groups: list[Mapping[str, str]]
    description: str | None = None
    uuid: str | None = None


def check_profile(profile: NewProfile) -> None:
    """Raises `Invalid` naming the group and the key."""
    if not _NAME.match(profile.name):
        raise Invalid(
            f"Device profile name {profile.name!r} may only have letters, digits, - and _, and at most 255 characters."
        )
    if not profile.groups:
        raise Invalid("Device profile needs at least one group.")
    for number, group in enumerate(profile.groups):
        _check_group(f"groups[{number}]", group)


def _check_group(where: str, group: Mapping[str, str]) -> None:
    amounts = 0
    for key, value in group.items():
        kind, _, name = key.partition(":")
        match kind:
            case "resources" if name:
                amounts += _check_amount(where, key, name, value)
            case "trait" if name:
                _check_trait(where, name, value)
            case "accel" if name:
                pass
            case _:
                raise Invalid(f"{where}: key {key!r} must begin with resources:, trait: or accel:.")
    if not amounts:
        raise Invalid(f"{where}: a group needs resources:<class>=<amount>.")


def _check_amount(where: str, key: str, name: str, value: str) -> int:
    if name not in STANDARD_CLASSES and not is_custom(name):
        raise Invalid(f"{where}: resource class {name!r} must be one of {_listed_names(STANDARD_CLASSES)} or CUSTOM_*.")
    if (
        not value.isdecimal()
        or len(value) > len(str(MAX_UNITS_PER_GROUP))
        or not 1 <= int(value) <= MAX_UNITS_PER_GROUP
    ):
        raise Invalid(f"{where}: {key} is {value!r}; it must be a whole number from 1 to {MAX_UNITS_PER_GROUP}.")
    return int(value)


def _check_trait(where: str, name: str, value: str) -> None:
    """`name`: a trait, or ``in:`` and several, of which the provider needs one."""
    for trait in alternatives(name):
        # Profiles may use this one standard trait, to distinguish Cyborg's devices from Nova's.
        if not is_custom(trait) and trait != OWNER_TRAIT:
            raise Invalid(f"{where}: trait {trait[:MAX_CHARACTERS]!r} must begin with CUSTOM_.")
    if name.startswith(ANY_OF) and value != "required":
        raise Invalid(f"{where}: trait {name[:MAX_CHARACTERS]} is {value!r}; several traits can only be required.")
    if value not in ("required", "forbidden"):
        raise Invalid(f"{where}: trait {name} is {value!r}; it must be required or forbidden.")


def _listed_names(names: Sequence[str] | frozenset[str]) -> str:
    return ", ".join(sorted(names))
