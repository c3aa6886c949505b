"""Spec: docs/evidence/specs/provider-config.md, "Format". A YAML document is decoded to entries or errors."""

from textwrap import dedent

import jsonschema
import pytest

from moorage.agent.provider_config.load import config_schema
from moorage.agent.provider_config.rules.check import CheckedDocument, check_document, duplicate_faults
from moorage.agent.provider_config.rules.model import FilePosition
from moorage.agent.provider_config.rules.yaml_text import read_yaml
from moorage.core.inventories import MAX_INT, Inventory
from moorage.placement.api.schemas.inventory import SET_DOCUMENT

SPEC_EXAMPLE = """\
meta:
  schema_version: 1.0

providers:
  - identification:
        uuid: $COMPUTE_NODE
    inventories:
        additional:
            CUSTOM_LLC:
                total: 22
                reserved: 2
                min_unit: 1
                max_unit: 11
                step_size: 1
                allocation_ratio: 1
    traits:
        additional:
            - CUSTOM_P_STATE_ENABLED
"""

UUID = "5213b75d-9260-42a6-b236-f39b0fd10561"


def checked(text: str) -> CheckedDocument:
    return check_document(read_yaml(dedent(text).encode()), "f.yaml", config_schema())


def entry(body: str, version: str = "'1.0'") -> CheckedDocument:
    """One provider entry; `body` is indented below its dash."""
    lines = dedent(body).strip("\n").splitlines()
    text = "\n".join(f"{'  - ' if index == 0 else '    '}{line}" for index, line in enumerate(lines))
    return checked(f"meta: {{schema_version: {version}}}\nproviders:\n{text}\n")


def record(body: str) -> CheckedDocument:
    return entry(f"identification: {{name: n}}\ninventories: {{additional: {{CUSTOM_A: {body}}}}}")


def identified(body: str) -> CheckedDocument:
    return entry(f"identification: {body}")


def problems(result: CheckedDocument) -> list[str]:
    return [f"{fault.path}: {fault.problem}" for fault in result.faults]


# ----------------------------------------------------------------------------------------- the document


def test_the_example_of_the_specification_loads():
    """R1, R8, R10 (provider-config): the specification's own example, unquoted version and integer ratio included."""
    (config,) = checked(SPEC_EXAMPLE).configs
    assert config.is_for_compute_nodes
    assert config.inventories["CUSTOM_LLC"].inventory() == Inventory(22, 2, 1, 11, 1, 1.0)
    assert config.traits == {"CUSTOM_P_STATE_ENABLED"}


def test_the_example_in_novas_form_gives_the_same_entry():
    """R8 (provider-config): `additional` as a list of one-key maps, and a quoted version."""
    lines = SPEC_EXAMPLE.splitlines()
    text = "\n".join(
        ("          - " + line.strip() if "CUSTOM_LLC" in line else line.replace("1.0", "'1.0'")) for line in lines
    )
    nova, spec = checked(text), checked(SPEC_EXAMPLE)
    assert not nova.faults
    assert (
        nova.configs[0].inventories["CUSTOM_LLC"].inventory() == spec.configs[0].inventories["CUSTOM_LLC"].inventory()
    )
    assert nova.configs[0].traits == spec.configs[0].traits


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("providers: []", "'meta' is a required property"),
        ("meta: []", "meta: [] is not a map"),
        ("- a", "['a'] is not a map"),
        ("meta: {schema_version: 1.0}\nproviders: {}", "providers: {} is not a list"),
        ("meta: {schema_version: 1.0}\nproviders:", "providers: nothing is not a list"),
        ("meta: {schema_version: 1.0}\nproviders: [null]", "providers[0]: nothing is not a map"),
    ],
)
def test_a_document_of_another_structure_is_refused(text, expected):
    """R1 (provider-config): `meta` is mandatory, `providers` is a list of maps."""
    assert any(expected in problem for problem in problems(checked(text)))


def test_a_document_without_providers_configures_nothing():
    assert checked("meta: {schema_version: '1.0'}") == CheckedDocument((), (), ())


# ------------------------------------------------------------------------------------------ the version


@pytest.mark.parametrize("version", ["1.0", "'1.0'", '"1.0"', "1.10", "'1.10'", "1.7", "!!str 1.0"])
def test_every_minor_version_of_major_1_is_accepted_quoted_or_not(version):
    """R2, R3 (provider-config): any 1.x, as a YAML string or a YAML float."""
    assert len(entry("identification: {name: n}", version).configs) == 1


@pytest.mark.parametrize("version", ["2.0", "'0.9'", "10.1"])
def test_another_major_version_is_the_only_fault_that_is_reported(version):
    """R3 (provider-config): other major: error."""
    (fault,) = entry("identification: {}", version).faults
    assert fault.problem == f"schema version {version.strip(chr(39))} is not known"
    assert fault.place == FilePosition(1, 8)


@pytest.mark.parametrize(
    "version",
    ["1", "'1'", "1.0.0", "latest", "1.01", "' 1.0 '", "01.0", "true", "", "[1.0]", "1.x", "'1.0\\n'", '"1.0\\n"'],
)
def test_a_version_that_is_not_major_dot_minor_is_refused(version):
    """R2 (provider-config)"""
    (fault,) = entry("identification: {name: n}", version).faults
    assert fault.path == "meta.schema_version"


def test_the_version_is_read_as_text_so_1_10_differs_from_1_1():
    """R2 (provider-config): as a YAML float both would be 1.1."""
    document = read_yaml(b"meta: {schema_version: 1.10}")
    assert document.texts[("meta", "schema_version")] == "1.10"


@pytest.mark.parametrize("version", ["1.0", "1.7"])
def test_unknown_fields_at_all_levels_are_ignored_and_named(version):
    """R3, R12 (provider-config): also unknown adjectives, inside records and beside the identification."""
    result = checked(f"""
        meta: {{schema_version: {version}, author: me}}
        x-anchors: {{}}
        providers:
          - identification: {{name: n, colour: red}}
            inventories:
              additional:
                CUSTOM_A: {{total: 1, reservd: 2}}
              removed: {{VCPU: {{}}}}
            traits:
              additional: [CUSTOM_B]
              forbidden: [CUSTOM_C]
            notes: [1, 2]
    """)
    assert not result.faults
    assert result.unknown == (
        "meta.author",
        "x-anchors",
        "providers[0].identification.colour",
        "providers[0].inventories.additional.CUSTOM_A.reservd (is `reserved` meant?)",
        "providers[0].inventories.removed",
        "providers[0].traits.forbidden",
        "providers[0].notes",
    )
    assert result.configs[0].inventories["CUSTOM_A"].inventory() == Inventory(1)


# ----------------------------------------------------------------------------------- the identification


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (f"{{uuid: {UUID}, name: n}}", "has both `uuid` and `name`"),
        (f"{{uuid: {UUID}, name: n, colour: red}}", "has both `uuid` and `name`"),
        ("{}", "has neither `uuid` nor `name`"),
        ("{colour: red}", "has neither `uuid` nor `name`"),
        ("n", "'n' is not a map"),
    ],
)
def test_exactly_one_of_uuid_and_name_identifies(body, problem):
    """R4 (provider-config)"""
    assert problems(identified(body)) == [f"providers[0].identification: {problem}"]


def test_an_entry_without_identification_is_refused():
    """R4 (provider-config): none is an error."""
    (problem,) = problems(entry("traits: {additional: [CUSTOM_A]}"))
    assert problem == "providers[0]: 'identification' is a required property"


@pytest.mark.parametrize("uuid", [UUID, UUID.upper(), f"'{UUID}'", "$COMPUTE_NODE", "'$COMPUTE_NODE'"])
def test_a_uuid_in_either_case_or_the_compute_node_is_accepted(uuid):
    """R5 (provider-config)"""
    (config,) = identified(f"{{uuid: {uuid}}}").configs
    assert config.identification in (UUID, "$COMPUTE_NODE")


@pytest.mark.parametrize("uuid", ["$OTHER", "5213b75d", UUID.replace("-", ""), f'"{UUID}\\n"', "5", "null", "''"])
def test_another_value_for_a_uuid_is_refused(uuid):
    """R5 (provider-config)"""
    assert [fault.path for fault in identified(f"{{uuid: {uuid}}}").faults] == ["providers[0].identification.uuid"]


@pytest.mark.parametrize("name", ["a", "x" * 200, "'1234'", "yes", "café 1", "a:b.c"])
def test_a_name_of_1_to_200_characters_is_accepted(name):
    """R6 (provider-config)"""
    (config,) = identified(f"{{name: {name}}}").configs
    assert config.name == name.strip("'")


@pytest.mark.parametrize("name", ["''", "x" * 201, "1234", "1.5", "true", "[a]", "null"])
def test_a_name_that_placement_would_refuse_is_refused(name):
    """R6 (provider-config): a string, 1 to 200 characters."""
    (fault,) = identified(f"{{name: {name}}}").faults
    assert fault.path == "providers[0].identification.name"


def test_compute_node_as_a_name_means_the_same_as_in_novas_sample():
    assert identified("{name: $COMPUTE_NODE}").configs[0].is_for_compute_nodes


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        ("name: a", "name: a", "a"),
        (f"uuid: {UUID}", f"uuid: {UUID}", UUID),
        (f"uuid: {UUID}", f"uuid: {UUID.upper()}", UUID),
        (f"uuid: {UUID}", f"name: {UUID}", UUID),
        ("uuid: $COMPUTE_NODE", "uuid: $COMPUTE_NODE", "$COMPUTE_NODE"),
        ("uuid: $COMPUTE_NODE", "name: $COMPUTE_NODE", "$COMPUTE_NODE"),
    ],
)
def test_a_provider_that_is_configured_twice_is_a_fault_that_names_both_places(first, second, named):
    """R7 (provider-config): also entries that add nothing, and UUIDs in different case."""
    result = checked(f"""
        meta: {{schema_version: 1.0}}
        providers:
          - identification: {{{first}}}
          - identification: {{{second}}}
    """)
    (fault,) = duplicate_faults(result.configs)
    assert fault.problem == f"{named} is configured twice, first at f.yaml:4:5"
    assert fault.place == FilePosition(5, 5)


# ------------------------------------------------------------------------------ inventories and traits


@pytest.mark.parametrize(
    "name", ["VCPU", "MEMORY_MB", "CUSTOM_", "CUSTOM_a", "CUSTOM-A", "custom_A", "CUSTOM_" + "A" * 249, '"CUSTOM_A\\n"']
)
@pytest.mark.parametrize("form", ["{%s: {total: 1}}", "[{%s: {total: 1}}]"])
def test_only_custom_classes_are_accepted_in_both_forms(name, form):
    """R9 (provider-config)"""
    (fault,) = entry(f"identification: {{name: n}}\ninventories: {{additional: {form % name}}}").faults
    assert fault.remedy.startswith("only custom classes may be added")
    assert fault.place is not None


@pytest.mark.parametrize("body", ["null", "5", "[]", "CUSTOM_A"])
def test_a_record_that_is_not_a_map_is_refused(body):
    """R10 (provider-config)"""
    (fault,) = record(body).faults
    assert fault.path == "providers[0].inventories.additional.CUSTOM_A"
    assert fault.problem.endswith("is not a map")


@pytest.mark.parametrize("additional", ["[null]", "[CUSTOM_A]", "[{}]", "{}", "CUSTOM_A", "5", "null"])
def test_another_structure_of_additional_is_refused_with_advice(additional):
    """R8 (provider-config): Nova fails with a TypeError, or reads each letter of the name as a class."""
    (fault,) = entry(f"identification: {{name: n}}\ninventories: {{additional: {additional}}}").faults
    assert fault.path.startswith("providers[0].inventories.additional")
    assert "CUSTOM_SOMETHING" in fault.remedy or "name a class" in fault.remedy


def test_a_record_without_total_is_refused():
    """R10 (provider-config): `total` is mandatory."""
    assert problems(record("{reserved: 1}")) == [
        "providers[0].inventories.additional.CUSTOM_A: 'total' is a required property"
    ]


def test_missing_fields_of_an_inventory_get_placements_defaults():
    """R10 (provider-config): missing fields stay missing and mean Placement's defaults."""
    written = record("{total: 5}").configs[0].inventories["CUSTOM_A"]
    assert (written.reserved, written.min_unit, written.max_unit, written.step_size) == (None, None, None, None)
    assert written.inventory() == Inventory(5, 0, 1, MAX_INT, 1, 1.0)


@pytest.mark.parametrize(("written", "ratio"), [("2", 2.0), ("0.5", 0.5)])
def test_an_allocation_ratio_may_be_an_integer(written, ratio):
    """R10 (provider-config)"""
    inventory = record(f"{{total: 5, allocation_ratio: {written}}}").configs[0].inventories["CUSTOM_A"].inventory()
    assert inventory.allocation_ratio == ratio
    assert isinstance(inventory.allocation_ratio, float)


@pytest.mark.parametrize(
    "body",
    ["{total: 2147483647}", "{total: 1, reserved: 1}", "{total: 22.0}"]
    + [f"{{total: 1, allocation_ratio: {ratio}}}" for ratio in ("1", "0.5", "1e2")],
)
def test_inventory_values_that_placement_accepts_are_accepted(body):
    assert not record(body).faults


@pytest.mark.parametrize(
    ("body", "field"),
    [
        *(
            (f"{{total: {value}}}", "total")
            for value in ("0", "-5", "2147483648", "9" * 26, "1.5", "'5'", "true", "null")
        ),
        *((f"{{total: {value}}}", "total") for value in ("010", "1_000", "0x10", "1:30")),
        *((f"{{total: 1, reserved: {value}}}", "reserved") for value in ("-1", "2147483648", "'1'", "0.5")),
        *((f"{{total: 1, {field}: 0}}", field) for field in ("min_unit", "max_unit", "step_size", "allocation_ratio")),
        *(
            (f"{{total: 1, allocation_ratio: {value}}}", "allocation_ratio")
            for value in ("-1.5", ".inf", ".nan", "1e999", "1e39")
        ),
    ],
)
def test_inventory_values_that_placement_would_refuse_are_faults(body, field):
    """R10 (provider-config), G11: Nova loads them and then never updates that provider again."""
    (fault,) = record(body).faults
    assert fault.path == f"providers[0].inventories.additional.CUSTOM_A.{field}"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("{total: 1, reserved: 2}", "reserved 2 is more than total 1"),
        ("{total: 9, min_unit: 5, max_unit: 4}", "min_unit 5 is more than max_unit 4"),
    ],
)
def test_inventory_fields_that_contradict_each_other_are_faults(body, problem):
    """R10 (provider-config)"""
    (fault,) = record(body).faults
    assert fault.problem == problem


@pytest.mark.parametrize(
    ("more", "placement_accepts", "file_accepts"),
    [
        ({"reserved": 10}, True, True),
        ({"min_unit": 20}, True, True),
        ({"allocation_ratio": 0}, True, False),
        ({"min_unit": 5, "max_unit": 4}, True, False),
        ({"step_size": 0}, False, False),
        ({"max_unit": 0}, False, False),
        ({"allocation_ratio": 1e39}, False, False),
    ],
)
def test_a_file_is_stricter_than_placement_only_where_nothing_could_be_allocated(more, placement_accepts, file_accepts):
    """Issue 18.6: the schema and the guide say this. The peer, Placement, answers as ours when it is run."""
    fields = {"total": 10, **more}
    document = {"resource_provider_generation": 0, "inventories": {"CUSTOM_A": fields}}
    assert jsonschema.Draft202012Validator(SET_DOCUMENT).is_valid(document) is placement_accepts
    body = ", ".join(f"{name}: {value}" for name, value in fields.items())
    assert bool(record(f"{{{body}}}").faults) is not file_accepts


def test_a_class_that_occurs_in_two_items_of_a_list_is_a_fault():
    """R8 (provider-config): in Nova the last one counts, without a warning."""
    (fault,) = entry("""
        identification: {name: n}
        inventories:
          additional:
            - CUSTOM_A: {total: 1}
            - CUSTOM_A: {total: 2}
    """).faults
    assert fault.problem == "CUSTOM_A occurs twice, first at f.yaml:6:11"
    assert fault.path == "providers[0].inventories.additional[1].CUSTOM_A"


@pytest.mark.parametrize("trait", ["HW_CPU_X86_AVX", "CUSTOM_", "CUSTOM_a", "5", "null", "{a: b}", '"CUSTOM_A\\n"'])
def test_only_custom_traits_are_accepted(trait):
    """R11 (provider-config)"""
    (fault,) = entry(f"identification: {{name: n}}\ntraits: {{additional: [CUSTOM_OK, {trait}]}}").faults
    assert fault.path == "providers[0].traits.additional[1]"


@pytest.mark.parametrize("additional", ["CUSTOM_A", "{CUSTOM_A: null}", "null"])
def test_traits_that_are_not_a_list_are_refused(additional):
    """R11 (provider-config)"""
    (fault,) = entry(f"identification: {{name: n}}\ntraits: {{additional: {additional}}}").faults
    assert fault.problem.endswith("is not a list")


def test_traits_that_are_not_below_an_adjective_are_refused():
    """R11 (provider-config)"""
    (fault,) = entry("identification: {name: n}\ntraits: [CUSTOM_A]").faults
    assert (fault.path, fault.problem) == ("providers[0].traits", "['CUSTOM_A'] is not a map")


@pytest.mark.parametrize(
    "body",
    [
        "", "inventories: {additional: {CUSTOM_A: {total: 1}}}", "traits: {additional: [CUSTOM_A]}", "traits: {}\ninventories: {}",
    ],
)  # fmt: skip
def test_an_entry_may_have_inventories_traits_both_or_neither(body):
    """R13 (provider-config)"""
    (config,) = entry(f"identification: {{name: n}}\n{body}").configs
    assert (config.name, config.uuid) == ("n", None)
    assert list(config.inventories) == (["CUSTOM_A"] if "total" in body else [])
    assert config.traits == ({"CUSTOM_A"} if "[CUSTOM_A]" in body else set())


# -------------------------------------------------------------------------------------- several faults


def test_every_fault_is_reported_with_its_place_in_order():
    """R16 (provider-config): not only the first fault."""
    result = checked("""\
        meta: {schema_version: 1.0}
        providers:
          - identification: {}
            inventories:
              additional:
                VCPU: {total: 0}
          - identification:
              uuid: nonsense
            traits:
              additional: [HW_A]
            inventories:
              additional: {CUSTOM_B: {total: 0}}
    """)
    assert [(fault.place, fault.path) for fault in result.faults] == [
        (FilePosition(3, 5), "providers[0].identification"),
        (FilePosition(6, 9), "providers[0].inventories.additional.VCPU"),
        (FilePosition(6, 16), "providers[0].inventories.additional.VCPU.total"),
        (FilePosition(8, 7), "providers[1].identification.uuid"),
        (FilePosition(10, 20), "providers[1].traits.additional[0]"),
        (FilePosition(12, 31), "providers[1].inventories.additional.CUSTOM_B.total"),
    ]
    assert str(result.faults[3]) == (
        "f.yaml:8:7: providers[1].identification.uuid: 'nonsense' is not allowed; "
        "write a UUID (8-4-4-4-12 hexadecimal digits), or $COMPUTE_NODE for every node of this host"
    )
    assert not result.configs
