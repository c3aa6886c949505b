"""Figures of Moorage alone: what was measured, the result, and its least or goal."""

from dataclasses import dataclass

from bench.report import machine_facts


@dataclass(frozen=True)
class Figure:
    measure: str
    value: str
    note: str = ""
    goal: str = ""


def line(one: Figure) -> str:
    """One figure as a line for a terminal."""
    return f"{one.measure:58} {one.value:>16}  {one.note}{f'  [{one.goal}]' if one.goal else ''}"


def markdown(figures: list[Figure], facts: dict[str, str]) -> str:
    lines = [f"* {name}: {value}" for name, value in (machine_facts() | facts).items()]
    lines += ["", "| measure | figure | | least / goal |", "|---|--:|---|---|"]
    lines += [f"| {one.measure} | {one.value} | {one.note} | {one.goal} |" for one in figures]
    return "\n".join(lines) + "\n"
