"""Draws the pictures of docs/concepts.md: `make reference`.

usage: .venv/bin/python tools/pictures.py

A picture consists of boxes on a grid and arrows, declared below; drawing needs no other program. Colours follow the
reader's choice of light or dark. The background is drawn, too, because the page may not follow that choice.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path

DIRECTORY = Path(__file__).parents[1] / "docs" / "pictures"
WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 208, 70, 64, 52, 12
STYLE = """
  .paper { fill: #ffffff } .box { fill: #eef3fa; stroke: #33527a; stroke-width: 1.5 } .other { fill: #fdf3e1; stroke: #8a5a00 }
  text { font: 13px sans-serif; fill: #1a1a1a; text-anchor: middle } .small { font-size: 11px } .beside { text-anchor: start }
  path { stroke: #33527a; stroke-width: 1.5; fill: none } #head path { fill: #33527a }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #12161c } .box { fill: #1d2b3d; stroke: #8fb3e0 } .other { fill: #3a2c10; stroke: #e0b060 }
    text { fill: #f0f0f0 } path { stroke: #8fb3e0 } #head path { fill: #8fb3e0 }
  }
"""

#: Column, row, title, and one or two lines of text below it. A title that begins with * has another colour.
Box = tuple[float, float, str, str]
Arrow = tuple[int, int, str]  #: from box, to box, words beside it

PICTURES: dict[str, tuple[str, Sequence[Box], Sequence[Arrow]]] = {
    "providers": (
        "A host is a tree of resource providers; what is shared hangs beside it by an aggregate",
        [
            (1, 0, "compute-1", "VCPU, MEMORY_MB, DISK_GB"),
            (0, 1, "NUMA_0", ""),
            (1, 1, "0000:3b:00.0_R1", "CUSTOM_ACCELERATOR_FPGA: 1"),
            (2, 1, "0000:17:00.0", "CUSTOM_ACCELERATOR_GPU: 1"),
            (2, 0, "*shared storage", "DISK_GB, sharing trait"),
        ],
        [(0, 1, ""), (0, 2, ""), (0, 3, ""), (4, 0, "")],
    ),
    "reservation": (
        "A lease becomes inventory of a class of its own, on a provider below the host; only its flavor asks for that class",
        [
            (0, 0, "lease", "from, until"),
            (1, 0, "reservation", "3 servers of one size"),
            (2, 0, "*flavor reservation:UUID", "resources:\nCUSTOM_RESERVATION_UUID=1"),
            (1, 1, "blazar_compute-1", "CUSTOM_RESERVATION_UUID: 3"),
            (2, 1, "compute-1", "ordinary requests\nare kept off"),
        ],
        [(0, 1, ""), (1, 3, "start"), (1, 2, "start"), (2, 3, "takes"), (4, 3, "")],
    ),
    "attach": (
        "From a flavor to a function in a guest",
        [
            (0, 0, "flavor", "1 FPGA, function F"),
            (1, 0, "placement", "which region, claimed"),
            (2, 0, "host agent", "os_acc.plug"),
            (0, 1, "*guest", "sees a PCI function"),
            (1, 1, "attach handle", "free, attached, dirty,\ncleaned"),
            (2, 1, "bitstream", "fetched, verified,\nprogrammed"),
        ],
        [(0, 1, ""), (1, 2, "job"), (2, 5, ""), (5, 4, ""), (4, 3, "")],
    ),
    "jobs": (
        "Work for a host is a row; whoever works on it holds it for a while, with an epoch",
        [
            (0, 0, "service", "state and job\nin one transaction"),
            (1, 0, "job row", "state, lease, epoch, key"),
            (2, 0, "host agent", "claims, works, reports"),
            (1, 1, "*hint", "in process, NOTIFY, RabbitMQ;\nmay get lost"),
        ],
        [(0, 1, "writes"), (2, 1, "claims"), (0, 3, "sends"), (3, 2, "wakes")],
    ),
}


def draw(title: str, boxes: Sequence[Box], arrows: Sequence[Arrow]) -> str:
    width = MARGIN * 2 + (max(box[0] for box in boxes) + 1) * (WIDTH + GAP_X) - GAP_X
    height = MARGIN * 2 + (max(box[1] for box in boxes) + 1) * (HEIGHT + GAP_Y) - GAP_Y
    parts = [line(boxes[start], boxes[end], words) for start, end, words in arrows] + [box_of(box) for box in boxes]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img" aria-label="{escape(title)}">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n"
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>\n'
        f'<rect class="paper" width="{width:g}" height="{height:g}" rx="8"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def corner(box: Box) -> tuple[float, float]:
    return MARGIN + box[0] * (WIDTH + GAP_X), MARGIN + box[1] * (HEIGHT + GAP_Y)


def box_of(box: Box) -> str:
    x, y = corner(box)
    kind = "box other" if box[2].startswith("*") else "box"
    middle, words = x + WIDTH / 2, box[3].split("\n") if box[3] else []
    first = y + HEIGHT / 2 + 5 - 8 * len(words)
    title = f'<text x="{middle:g}" y="{first:g}">{escape(box[2].lstrip("*"))}</text>'
    below = "".join(
        f'<text class="small" x="{middle:g}" y="{first + 3 + 15 * number:g}">{escape(line)}</text>'
        for number, line in enumerate(words, start=1)
    )
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>{title}{below}'


def line(start: Box, end: Box, words: str) -> str:
    """An arrow from edge to edge, with its text above it, or beside it if it goes to another row."""
    (x, y), (to_x, to_y) = corner(start), corner(end)
    if start[1] == end[1]:
        right = to_x > x
        x, to_x = (x + WIDTH, to_x) if right else (x, to_x + WIDTH)
        y = to_y = y + HEIGHT / 2
    else:
        x, to_x = x + WIDTH / 2, to_x + WIDTH / 2
        y, to_y = (y + HEIGHT, to_y) if to_y > y else (y, to_y + HEIGHT)
    middle, height, slope = (x + to_x) / 2, (y + to_y) / 2, (to_x - x) * (to_y - y)
    if y == to_y:
        at = f'class="small" x="{middle:g}" y="{y - 8:g}"'
    else:  # on the side away from the line
        at = f'class="small beside" x="{middle + 8:g}" y="{height + (4 if slope == 0 else -8 if slope > 0 else 16):g}"'
    said = f"<text {at}>{escape(words)}</text>" if words else ""
    return f'<path d="M{x:g} {y:g}L{to_x:g} {to_y:g}" marker-end="url(#head)"/>{said}'


def main() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    for name, picture in PICTURES.items():
        (DIRECTORY / f"{name}.svg").write_text(draw(*picture), encoding="utf-8")


if __name__ == "__main__":
    main()
