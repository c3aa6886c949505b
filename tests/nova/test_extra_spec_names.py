"""The list of extra specs and image properties in tests/docs is the one of the installed Nova."""

import re
import subprocess

from tests.docs.test_extra_specs_page import NOVA
from tests.processes import python_of

PROGRAM = """
from nova import objects
from nova.api.validation.extra_specs import validators
from nova.objects.image_meta import ImageMetaProps

objects.register_all()
for name in validators.VALIDATORS:
    print("flavor", name)
for name in {*ImageMetaProps.fields, *ImageMetaProps._legacy_property_map, "vmware_adaptertype"}:
    print("image", name)
"""
_STANDARD = re.compile(r"(resources|trait)\{group\}:(?!CUSTOM_)")


def test_the_list_has_every_name_that_nova_validates():
    done = subprocess.run(
        [python_of(".venv-nova"), "-W", "ignore", "-c", PROGRAM], check=True, capture_output=True, text=True
    )
    names = {tuple(line.split(" ", 1)) for line in done.stdout.splitlines()}
    assert {(kind, name) for kind, name in names if not _STANDARD.match(name)} == set(NOVA)
