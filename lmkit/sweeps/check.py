"""Checks every point of a sweep as training would, without training. The check,
`lmkit.cli.check_points`, runs in its own process: a sweep may wait for weeks, and keeps no torch in
memory meanwhile.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

from lmkit.errors.user_error import UserError
from lmkit.sweeps.points import Config

PROGRAM = "lmkit.cli.check_points"


class Checked(NamedTuple):
    """What the check found about a point."""

    run: str  # name of its run folder; empty with an error
    error: str | None  # what is wrong with it, in one line


def check(configs: Sequence[Config], has_gpu: bool | None = None) -> list[Checked]:
    """Checks composed configurations, in order; stops after the first bad one.

    Args:
        configs: the configurations to be trained.
        has_gpu: whether the machine that trains them has a GPU; None: it is this one.

    Raises: UserError when the check itself cannot run.
    """
    done = subprocess.run(
        [sys.executable, "-m", PROGRAM],
        input=json.dumps({"has_gpu": has_gpu, "configs": configs}),
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        last_line = " ".join(done.stderr.strip().splitlines()[-1:])
        raise UserError(f"the points cannot be checked: {last_line}")
    return [Checked(*each) for each in json.loads(done.stdout.splitlines()[-1])]
