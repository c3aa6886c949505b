"""Fakes of vendors' tools: small programs, first on a private PATH.

Their output follows the vendors' documents; it was not recorded from real tools. `behave` makes the next runs fail.
"""

import json
import stat
import sys
from pathlib import Path

#: The file "cards" has the state of the cards, ``{card: {"shown": uuid, "type": uuid}}``. Each run writes its command
#: line to a log.
_TOOL = """#!{python}
import json, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
name, words = os.path.basename(__file__), sys.argv[1:]
with open(here + "/log", "a") as log:
    print(json.dumps([name, words, sorted(os.environ)]), file=log)
how = open(here + "/how").read().strip() if os.path.exists(here + "/how") else ""
only, _, how = how.rpartition(" ")
if only and only not in [name, *words]:
    how = ""
if how == "fails":
    print("one line\\nError: the card does not answer", file=sys.stderr)
    sys.exit(3)
if how == "hangs":
    if os.fork() == 0:  # a child that keeps the pipes open
        time.sleep(600)
    time.sleep(600)
if how == "silent":
    os.close(1)
    os.close(2)
    time.sleep(600)
if how == "rubbish":
    print("\\x00\\xff rubbish : : {{[")
    for index, word in enumerate(words):
        if word == "--output":
            open(words[index + 1], "w").write("rubbish {{[")
    sys.exit(0)
if how == "endless":
    while True:
        print("x" * 65536)
value = lambda option: words[words.index(option) + 1]
cards = json.load(open(here + "/cards"))
def save(card, **more):
    cards[card].update(more)
    json.dump(cards, open(here + "/cards.new", "w"))
    os.replace(here + "/cards.new", here + "/cards")
{body}
"""

_OPAE = """
part = lambda option: value(option)[2:]
card = f"{part('--segment')}:{part('--bus')}:{part('--device')}.{part('--function')}"
if name == "fpgainfo":
    print("Intel FPGA Programmable Acceleration Card")
    print("//****** " + words[0].upper() + " ******//")
    print(f"Object Id                        : 0xEE00000\\nPCIe s:b:d.f                     : {card}")
    if words[0] == "fme":
        print("Bitstream Version                : 0.2.3")
        print("Pr Interface Id                  : " + cards[card]["type"])
    else:
        print("Accelerator Id                   : " + cards[card]["shown"])
else:
    if how != "lies":
        data = open(words[-1], "rb").read()
        length = int.from_bytes(data[16:20], "little")
        about = json.loads(data[20:20 + length])["afu-image"]
        shown = about["accelerator-clusters"][0]["accelerator-type-uuid"]
        for one in list(cards):
            save(one, shown=shown)
"""

_XRT = """
card = value("--device")
if words[0] == "program":
    if how != "lies":
        data = open(value("--user"), "rb").read()
        save(card, shown=data[416:432].hex())
else:
    if os.path.exists(value("--output")):
        sys.exit("it exists")
    if value("--report") == "platform":
        device = {"platforms": [{"static_region": {"vbnv": "made_up", "logic_uuid": cards[card]["type"]}}]}
    else:
        device = {"dynamic_regions": [{"xclbin_uuid": cards[card]["shown"], "compute_units": []}]}
    report = {"schema_version": {"schema": "JSON"}, "devices": [{"interface_type": "pcie", "device_id": card} | device]}
    json.dump(report, open(value("--output"), "w"))
"""


class FakeTools:
    def __init__(self, directory: Path, cards: dict) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        bodies = {"fpgainfo": _OPAE, "fpgaconf": _OPAE, "xbmgmt": _XRT, "xbutil": _XRT}
        for name, body in bodies.items():
            path = directory / name
            path.write_text(_TOOL.replace("{python}", sys.executable).replace("{body}", body).replace("{{", "{"))
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        (directory / "cards").write_text(json.dumps(cards))

    @property
    def path(self) -> str:
        return str(self.directory)

    def behave(self, how: str, only: str = "") -> None:
        """Sets how the next runs behave: ``fails``, ``hangs``, ``silent`` (hangs with closed outputs), ``rubbish``,
        ``endless`` or ``lies`` (loads nothing and reports success).

        `only` limits this to runs of one tool, or with one word in their command line.
        """
        (self.directory / "how").write_text(f"{only} {how}")

    def runs(self) -> list:
        """(tool, arguments, names of its environment variables) of each run."""
        log = self.directory / "log"
        return [tuple(json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []
