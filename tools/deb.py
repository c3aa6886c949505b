"""Builds a Debian package of this checkout for the Debian and the architecture of this machine.

usage: .venv/bin/python tools/deb.py [DIRECTORY]          default: dist/; prints the path of the package

The package has Moorage and every Python package of its extras, at the pinned versions, as a virtual environment of the
system's Python in /usr/lib/moorage: the versions in Debian are older than those that are tested. libvirt's Python
module is Debian's own (python3-libvirt), because it must fit the machine's libvirt. packaging/debian has the control
file, the maintainer scripts and the first configuration; packaging/systemd has the units.
"""

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools import install, wheel

ROOT = Path(__file__).parents[1]
PACKAGING = ROOT / "packaging"
#: The system's Python: the environment is made with it and runs on it.
PYTHON = Path("/usr/bin/python3")
#: Requirements files of the extras that the package has; libvirt's is Debian's package.
LOCKS = ("runtime", "keystonemiddleware", "nvidia", "signatures", "oidc", "otel")
LIBRARY = Path("usr/lib/moorage")
DOCUMENTS = Path("usr/share/doc/moorage")
#: Pages that the configuration file names.
PAGES = (
    "docs/reference/options.md",
    "docs/reference/licences.md",
    "docs/guides/tls.md",
    "docs/guides/hosts.md",
    "docs/guides/installing.md",
)


def build(target: Path) -> Path:
    """Builds the package in the directory `target`."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    architecture = _output("dpkg", "--print-architecture")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "moorage"
        tree.mkdir(mode=0o755)
        _install_library(tree, Path(scratch))
        _install_files(tree)
        _install_documents(tree, version)
        _write_control(tree, version, architecture)
        _set_modes(tree)
        package = target / f"moorage_{version}-1_{architecture}.deb"
        command = ["dpkg-deb", "--root-owner-group", "-Zxz", "-z1", "--build", tree, package]
        environment = os.environ | {"SOURCE_DATE_EPOCH": _committed_at()}
        subprocess.run(command, check=True, env=environment, stdout=sys.stderr)
    return package


def _install_library(tree: Path, scratch: Path) -> None:
    """The virtual environment with Moorage, as it will be in /usr/lib/moorage."""
    library = tree / LIBRARY
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", library], check=True)
    python = library / "bin" / "python"
    locks = [f"--requirement={ROOT / 'requirements' / lock}.txt" for lock in LOCKS]
    install.install(python, ["--require-hashes", *locks], compiled=False)
    install.install(python, ["--no-deps", str(wheel.build(scratch))], compiled=False)
    for path in (library / "bin").iterdir():
        if path.name not in ("python", "python3"):
            path.unlink()
    program = library / "bin" / "moorage"
    program.write_text(
        f"#!/{LIBRARY}/bin/python\nimport sys\n\nfrom moorage.cli.main import main\n\nsys.exit(main())\n"
    )
    (library / "pyvenv.cfg").write_text(
        f"home = {PYTHON.parent}\ninclude-system-site-packages = false\nversion = {_python_version()}\n"
    )
    (packages,) = library.glob("lib/python3.*/site-packages")
    (packages / "debian.pth").write_text(f"/{LIBRARY}/debian\n")
    (library / "debian").mkdir()
    for name in _libvirt_modules():
        (library / "debian" / name).symlink_to(f"../../python3/dist-packages/{name}")
    (library / "bin" / "python3").unlink()
    (library / "bin" / "python3").symlink_to("../../../bin/python3")
    (library / ".lock").unlink(missing_ok=True)  # uv's
    for folder in (library / "include", *library.rglob("__pycache__")):
        shutil.rmtree(folder)


def _install_files(tree: Path) -> None:
    """Everything that is outside /usr/lib/moorage and no document."""
    (tree / "usr/bin").mkdir()
    (tree / "usr/bin/moorage").symlink_to("../lib/moorage/bin/moorage")
    _copy(PACKAGING / "debian" / "moorage.conf", tree / "etc/moorage/moorage.conf")
    for unit in sorted((PACKAGING / "systemd").glob("*.service")):
        _copy(unit, tree / "lib/systemd/system" / unit.name)
    _copy(PACKAGING / "systemd" / "sysusers.conf", tree / "usr/lib/sysusers.d/moorage.conf")
    for page in sorted((PACKAGING / "man").iterdir()):
        _compress(page.read_bytes(), tree / "usr/share/man/man1" / f"{page.name}.gz")
    for folder in ("prometheus", "grafana"):
        for path in sorted((PACKAGING / folder).iterdir()):
            _copy(path, tree / "usr/share/moorage" / folder / path.name)
    _copy(PACKAGING / "debian" / "lintian-overrides", tree / "usr/share/lintian/overrides/moorage")
    shutil.rmtree(tree / LIBRARY / "share")


def _install_documents(tree: Path, version: str) -> None:
    for page in PAGES:
        _compress((ROOT / page).read_bytes(), tree / DOCUMENTS / f"{Path(page).name}.gz")
    _copy(PACKAGING / "debian" / "copyright", tree / DOCUMENTS / "copyright")
    _compress((ROOT / "CHANGELOG.md").read_bytes(), tree / DOCUMENTS / "changelog.gz")
    when = datetime.fromtimestamp(int(_committed_at()), UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")
    maintainer = next(line for line in _control_lines() if line.startswith("Maintainer: ")).partition(": ")[2]
    entry = f"moorage ({version}-1) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- {maintainer}  {when}\n"
    _compress(entry.encode(), tree / DOCUMENTS / "changelog.Debian.gz")


def _write_control(tree: Path, version: str, architecture: str) -> None:
    control = tree / "DEBIAN"
    control.mkdir()
    size = sum(path.lstat().st_size for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    minor = int(_python_version().split(".")[1])
    values = {
        "@VERSION@": f"{version}-1",
        "@ARCHITECTURE@": architecture,
        "@SIZE_KIB@": str(size // 1024),
        "@PYTHON@": f"python3 (>= 3.{minor}~), python3 (<< 3.{minor + 1})",
    }
    text = "\n".join(_control_lines()) + "\n"
    for name, value in values.items():
        text = text.replace(name, value)
    (control / "control").write_text(text)
    (control / "conffiles").write_text("/etc/moorage/moorage.conf\n")
    for script in ("postinst", "prerm", "postrm"):
        _copy(PACKAGING / "debian" / script, control / script)


def _set_modes(tree: Path) -> None:
    """A package has the same modes whatever the umask of its build was."""
    programs = {
        tree / LIBRARY / "bin" / "moorage",
        *(tree / "DEBIAN" / name for name in ("postinst", "prerm", "postrm")),
    }
    for path in tree.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path in programs else 0o644)


def _control_lines() -> list[str]:
    return (PACKAGING / "debian" / "control").read_text().splitlines()


def _libvirt_modules() -> list[str]:
    """Files of Debian's python3-libvirt, which need not be installed."""
    suffix = _output(str(PYTHON), "-c", "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))")
    return ["libvirt.py", f"libvirtmod{suffix}"]


def _python_version() -> str:
    return _output(str(PYTHON), "-c", "import platform; print(platform.python_version())")


def _committed_at() -> str:
    """Seconds since 1970 of the last commit."""
    return _output("git", "-C", str(ROOT), "log", "-1", "--format=%ct")


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _compress(content: bytes, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(content, 9, mtime=0))


if __name__ == "__main__":
    print(build(Path(*sys.argv[1:2]) if sys.argv[1:] else ROOT / "dist"))
