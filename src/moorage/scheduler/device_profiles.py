"""The groups of a device profile as extra specs of a flavor."""

from collections.abc import Mapping, Sequence

from moorage.scheduler.extra_specs import POLICY_KEY, read


def specs_of_profile(extra_specs: Mapping[str, str], groups: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What the profile that a flavor with `extra_specs` names adds to these.

    Group n has the suffix ``device_profile_<n>``, as in Nova; ``accel:`` keys of the profile get it too. So what is
    asked of Placement, and what the host plugs, is read from one place, whatever becomes of the profile later.
    """
    added = {}
    for number, group in enumerate(groups):
        for key, value in group.items():
            kind, _, rest = key.partition(":")
            added[f"{kind}device_profile_{number}:{rest}"] = str(value)
    own = read(extra_specs)
    # Nova's rule: with one group of the flavor's own at most, nobody can have meant them to exclude each other.
    if len([suffix for suffix in own.suffixes() if suffix]) <= 1 and own.group_policy is None:
        added.setdefault(POLICY_KEY, "none")
    return added
