"""The axes of a sweep: the options in which its points differ, except its own bookkeeping."""

from collections.abc import Sequence

_TOLD = "sweep."  # options by which a sweep tells a run its name, its axes and its trial


def labels(lines: Sequence[Sequence[str]]) -> list[str]:
    """What distinguishes each point: the overrides that not all of them share."""
    lines = _without_told(lines)
    common = set(lines[0]).intersection(*lines[1:]) if len(lines) > 1 else set()
    return [" ".join(o for o in line if o not in common) or "no overrides" for line in lines]


def varied_options(lines: Sequence[Sequence[str]]) -> list[str]:
    """The options and groups that differ between lines, in order.

    Args:
        lines: the overrides of each point, as `option=value`.
    """
    lines = _without_told(lines)
    common = set(lines[0]).intersection(*lines[1:]) if lines else set()
    varied = (override for line in lines for override in line if override not in common)
    return list(dict.fromkeys(each.partition("=")[0].lstrip("+~") for each in varied))


def _without_told(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[o for o in line if not o.startswith(_TOLD)] for line in lines]
