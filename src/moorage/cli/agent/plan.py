"""The files that a joining machine gets: their content, how they differ from what is there, and how they are written.

A file is written as a whole, with its mode, after all of them have been compared. A file of the operator is never
replaced silently: see `PlannedFile.compare`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from moorage.config import ENDPOINT_PATHS, Config, load_config, parse_config, sections
from moorage.core.errors import StartError
from moorage.durable import write_durably

#: State directory of ``moorage-agent.service``.
STATE = Path("/var/lib/moorage-agent")

#: {section: {option: value}}
Options = Mapping[str, Mapping[str, str]]


def agent_options(host: str, url: str, *, address: str, ca_file: Path | None, given: Options) -> Options:
    """The options of the agent of `host`. `address`: this machine's towards the server at `url`. `given`: the
    operator's, which replace ours.
    """
    state = given.get("plane", {}).get("state_path", str(STATE))
    endpoints = {name: f"{url}/{name}" for name in ENDPOINT_PATHS}
    ours: dict[str, dict[str, str]] = {
        "plane": {"services": "agent", "state_path": state, "log_file": ""},
        "agent": {"host": host, "virt_driver": "libvirt"},
        "libvirt": {"host_ip": address, "instances_path": f"{state}/instances"},
        "accelerator": {"drivers": ""},
        "endpoints": endpoints | ({"ca_file": str(ca_file)} if ca_file else {}),
    }
    return {name: ours.get(name, {}) | dict(given.get(name, {})) for name in sections() if name in {*ours, *given}}


def parse_options(words: Sequence[str]) -> Options:
    """Parses ``SECTION.OPTION=VALUE`` words. Raises `StartError` for a malformed word or an unknown section."""
    found: dict[str, dict[str, str]] = {}
    for word in words:
        name, equals, value = word.partition("=")
        section, dot, option = name.strip().partition(".")
        if not (equals and dot and section and option) or not value.isprintable():
            raise StartError(f"--set {word!r} is not SECTION.OPTION=VALUE, such as agent.workers=8")
        found.setdefault(section, {})[option] = value.strip()
    if unknown := sorted(found.keys() - sections().keys()):
        raise StartError(f"--set: there is no section {unknown[0]}; sections are {', '.join(sections())}")
    return found


def render_options(options: Options, host: str) -> str:
    """Returns the text of a configuration file with the options."""
    lines = [
        f"# The agent of {host}, written by `moorage agent join`. `moorage config show --defaults` explains options.",
        "# An option that you change here stays: a repeated join refuses to replace it unless you say --replace.",
    ]
    for section, values in options.items():
        lines += ["", f"[{section}]", *(f"{name} = {value}".rstrip() for name, value in values.items())]
    return "".join(f"{line}\n" for line in lines)


class FileState(Enum):
    """How a planned file relates to what is on the disk."""

    NEW = "new"
    SAME = "same"
    DIFFERENT = "different"


@dataclass(frozen=True)
class PlannedFile:
    """`options`: for a configuration file, what must hold in it; None for a file that must be equal byte for byte."""

    path: Path
    content: bytes
    mode: int
    options: Options | None = None

    def compare(self) -> tuple[FileState, str]:
        """(state, what differs). A configuration with further options counts as the same. Raises `StartError`."""
        try:
            present = self.path.read_bytes()
        except FileNotFoundError:
            return FileState.NEW, ""
        except OSError as error:
            raise StartError(f"{self.path} cannot be read: {error.strerror}; run this as root") from error
        if present == self.content:
            return FileState.SAME, ""
        if self.options is None:
            return FileState.DIFFERENT, "its content"
        wanted = parse_config(self.content.decode(), self.path)
        differing = list(_differing(load_config(self.path), wanted, self.options))
        return (FileState.DIFFERENT, ", ".join(differing)) if differing else (FileState.SAME, "")

    @property
    def former(self) -> Path:
        """The path at which the replaced file is kept."""
        return self.path.with_name(f"{self.path.name}.before")


def _differing(present: Config, wanted: Config, options: Options) -> Iterator[str]:
    for section, values in options.items():
        for name in values:
            if getattr(getattr(present, section), name) != getattr(getattr(wanted, section), name):
                yield f"[{section}] {name}"


def needs_writing(files: Sequence[PlannedFile], *, replaces: bool) -> bool:
    """Whether `write_files` will write any of them. Raises `StartError` for different ones that may not be replaced."""
    compared = [(file, *file.compare()) for file in files]
    refused = [(file, what) for file, state, what in compared if state is FileState.DIFFERENT]
    if refused and not replaces:
        named = "; ".join(f"{file.path} ({what})" for file, what in refused)
        raise StartError(
            f"these files are there already and differ from what this command would write: {named}. Nothing was "
            "written. Remove them, correct them, give the options with --set, or add --replace, which keeps them as "
            "*.before"
        )
    return any(state is not FileState.SAME for _, state, _ in compared)


def write_files(files: Sequence[PlannedFile]) -> Iterator[str]:
    """Writes those that are new or different, and keeps what a different one replaces. Yields a sentence for each."""
    for file in files:
        state, _ = file.compare()
        if state is FileState.SAME:
            yield f"{file.path} is there already, and is kept"
            continue
        kept = ""
        if state is FileState.DIFFERENT:
            write_file(file.former, file.path.read_bytes(), 0o600)
            kept = f"; the former file is {file.former}"
        write_file(file.path, file.content, file.mode)
        yield f"{file.path} is written{kept}"


def write_file(path: Path, content: bytes, mode: int) -> None:
    """Replaces `path` as a whole. Raises `StartError`."""
    try:
        make_directory(path.parent, 0o755)
        write_durably(path, content)
        path.chmod(mode)
    except OSError as error:
        raise StartError(f"{path} cannot be written: {error.strerror}; run this as root") from error


def make_directory(path: Path, mode: int) -> None:
    """Creates it with `mode` if it does not exist, whatever the umask."""
    if not path.is_dir():
        make_directory(path.parent, 0o755)
        path.mkdir(exist_ok=True)
        path.chmod(mode)  # that of mkdir is subject to the umask
