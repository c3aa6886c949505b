"""Every call in the source code that reads or writes images names its view.

If you add a call, add it to `CALLS` here, with its view and the reason.
"""

import ast
import functools
import inspect
import typing
from pathlib import Path

import pytest

import moorage
from moorage.images import base, cache, client, glance
from moorage.images.base import CallerView, OwnerView, ProjectView, PublicView, ServiceView

SOURCE = Path(moorage.__file__).parent
VIEWS = {CallerView, ProjectView, OwnerView, PublicView}

#: (module, function): {(operation, its view as written)}
CALLS = {
    # The request of a user, with the user's token; then a check whether the server's project may use the image, too.
    ("compute.requests.server_request", "usable_image"): {("get", "CallerView.of(caller)")},
    ("compute.requests.server_request", "_may_use"): {("get", "ProjectView(project_id)")},
    ("compute.catalogue.image_proxy", "ImageProxy.show"): {("get", "CallerView.of(caller)")},
    ("compute.catalogue.image_proxy", "ImageProxy.page"): {("page", "CallerView.of(caller)")},
    ("compute.servers.operate_service", "OperateService._announce"): {("announce", "view")},
    # Images of servers' disks that are no longer needed: of the server's project.
    ("compute.moves.migration_worker", "MigrationTask._delete_image"): {("delete", "OwnerView(server.project_id)")},
    # Disks that a host sends become images of the project of the server that the job is about.
    ("compute.agents.disk_image_service", "DiskImageService.upload_disk_image"): {
        ("upload", "view"),
        ("find", "view"),
        ("delete", "view"),
    },
    ("compute.agents.disk_image_service", "DiskImageService.withdraw_image"): {
        ("delete", "OwnerView(job.server.project_id)")
    },
    # A host acts for the project of the server. Its requests go through compute and the accelerator service, which
    # compare the project with the host's servers and jobs.
    ("agent.virt.libvirt_images", "BaseImages.image_record"): {("get", "view")},
    ("agent.virt.libvirt_images", "BaseImages.copy_file"): {("open", "view")},
    ("agent.virt.libvirt_images", "BaseImages._fetch"): {("open", "view")},
    # Snapshots before the end of a lease become images of the server's project.
    ("reservation.steps.notification_steps", "SnapshotSteps._snapshot"): {("has_image", "view")},
    # Bitstreams are read for the project that requests them.
    ("accelerator.host.bitstream_lookup", "_find_by_id"): {("get", "target.view")},
    ("accelerator.host.bitstream_lookup", "_search"): {("find", "target.view")},
    ("accelerator.service.operator_service", "_get_images"): {("get", "target.view")},
    ("accelerator.host.programming", "RegionProgrammer.image_hints"): {("get", "BitstreamTarget('', project_id).view")},
    ("accelerator.host.programming", "RegionProgrammer._fetched_data"): {("open", "chosen.view")},
}

#: (module, function) that gets a connection to the image service -> the classes to which it passes it. Every operation
#: of these classes takes a view.
CONNECTIONS = {
    ("wiring.services", "_compute_service"): {"CallerImages", "GlanceImages", "ImageLookup", "ImageWriter"},
    ("wiring.services", "build_accelerator"): {"GlanceImages"},
    ("wiring.services", "build_reservation"): {"ImageLookup"},
}

CLASSES = (
    base.ImageSource,
    client.ImageLookup,
    client.ImageWriter,
    client.CallerImages,
    glance.GlanceImages,
)

#: Names of variables for images or the image service.
RECEIVERS = {"images", "_images", "image_writer", "_image_writer", "writer", "source", "_source", "cache", "_cache"}
#: The argument of each operation that is the view. `DigestCache.open` has its image and source first.
OPERATIONS = {"find": 0, "get": 0, "open": 0, "delete": 0, "announce": 0, "upload": 0, "has_image": 0, "http": 0, "page": 0,
              "document": 0}  # fmt: skip


def functions(tree, prefix=""):
    """(qualified name, function) of all functions that are not inside another one."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield f"{prefix}{node.name}", node


@functools.cache
def modules():
    """(name, tree) of the modules outside the image service itself."""
    names = {path: ".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in sorted(SOURCE.rglob("*.py"))}
    return [(name, ast.parse(path.read_text())) for path, name in names.items() if not name.startswith("images.")]


def knows_images(tree):
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return any(name.startswith(("moorage.images", "moorage.compute.requests.server_request")) for name in imported)


def calls_in(function):
    """{(operation, view as written)}"""
    for node in ast.walk(function):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        receiver = node.func.value
        last = receiver.attr if isinstance(receiver, ast.Attribute) else getattr(receiver, "id", "")
        if last in RECEIVERS and node.func.attr in OPERATIONS:
            place = 2 if last.endswith("cache") else OPERATIONS[node.func.attr]
            yield node.func.attr, ast.unparse(node.args[place]) if len(node.args) > place else "no view"


def test_every_call_in_the_source_code_names_the_listed_view():
    found = {}
    for module, tree in modules():
        for name, function in functions(tree) if knows_images(tree) else ():
            if calls := set(calls_in(function)):
                found[module, name] = calls
    assert found == CALLS


def test_every_connection_to_the_image_service_is_passed_to_a_class_whose_operations_take_a_view():
    found = {}
    for module, tree in modules():
        for name, function in functions(tree):
            for outer in ast.walk(function):
                for argument in outer.args if isinstance(outer, ast.Call) else ():
                    if is_connection(argument):
                        found.setdefault((module, name), set()).add(ast.unparse(outer.func))
    assert found == CONNECTIONS


def is_connection(node):
    """Whether `node` is a call such as ``parts.client("image")`` or ``transport("image")``."""
    return (
        isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in ("client", "transport")
        and any(isinstance(argument, ast.Constant) and argument.value == "image" for argument in node.args)
    )


def test_no_connection_to_the_image_service_is_kept_in_a_variable():
    """Otherwise it could be used for requests without a view."""
    for module, tree in modules():
        ways = sum(is_connection(node) for node in ast.walk(tree))
        arguments = sum(
            is_connection(one) for node in ast.walk(tree) if isinstance(node, ast.Call) for one in node.args
        )
        assert ways == arguments, module


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_the_first_parameter_of_every_operation_is_the_view(kind):
    operations = {name: one for name, one in vars(kind).items() if callable(one) and not name.startswith("_")}
    assert operations
    for name, operation in operations.items():
        written = inspect.unwrap(operation)
        first = list(inspect.signature(written).parameters.values())[1]
        hint = typing.get_type_hints(written, vars(base) | {"ServiceView": ServiceView})["view"]
        assert (first.name, first.default) == ("view", inspect.Parameter.empty), name
        assert set(typing.get_args(hint) or {hint}) <= VIEWS, name


def test_opening_an_image_in_the_cache_requires_a_view():
    view = inspect.signature(inspect.unwrap(cache.DigestCache.open)).parameters["view"]
    assert view.default is inspect.Parameter.empty


def test_the_search_for_calls_finds_calls_without_a_view():
    tree = ast.parse("def f(self, image_id):\n    self._images.get(image_id)\n    images.find()")
    assert set(calls_in(tree)) == {("get", "image_id"), ("find", "no view")}
