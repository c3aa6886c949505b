"""Prints the commands of the installed osc-placement with their arguments, as JSON; runs in .venv-clients.

`test_osc_placement` starts it. Output: {command: [arguments]}, with options by their long name and positional arguments
by their own. It leaves out the arguments that cliff adds to every command (formats, columns, widths).
"""

import json
import warnings
from importlib.metadata import entry_points

warnings.simplefilter("ignore")


def arguments(command: type) -> list[str]:
    parser = command(None, None).get_parser("")
    own = [group for group in parser._action_groups if group.title in ("positional arguments", "options")]
    actions = [action for group in own for action in group._group_actions if action.dest != "help"]
    return [action.option_strings[-1] if action.option_strings else action.dest for action in actions]


def main() -> None:
    found = entry_points(group="openstack.placement.v1")
    print(json.dumps({one.name.replace("_", " "): arguments(one.load()) for one in found}))


main()
