"""Disturbs runs at random moments, types their line again until it finishes, and compares:

    python -m tests.faults.campaign --draws 1000 --states 1000 --tally faults.jsonl

Each draw has a seed, which decides the run, the faults and their moments. What a draw has found is
a line of the tally; a later campaign goes on with the seed after the last. A draw fails when a
number, a file or a step differs from the undisturbed run's, or when a process ends in a traceback
or in an error that names no way on.

Then what a run wrote is cut at every sync, and its line is typed again on states that a power loss
may leave there.
"""

import argparse
import ctypes
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.interposer import Control, has_compiler, preloaded

_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER of prctl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=25)
    parser.add_argument("--states", type=int, default=20, help="of those after a power loss")
    parser.add_argument("--seed", type=int, help="of the first draw; else the tally's next")
    parser.add_argument(
        "--counted", action="store_true", help="faults before counted calls alone, not in time"
    )
    parser.add_argument("--tally", type=Path, help="file to which each draw adds a line")
    options = parser.parse_args()
    folder, control = prepared("tests.faults.campaign")
    # slow to import: once the process has its library
    from tests.faults.laboratory import Laboratory
    from tests.faults.power_loss import lose_power
    from tests.faults.trial import draw

    before = _read(options.tally)
    first = options.seed or max((each["seed"] for each in before), default=0) + 1
    laboratory, done = Laboratory(folder, control), []
    for seed in range(first, first + options.draws):
        start = time.monotonic()
        outcome = {"seed": seed, **draw(laboratory, Random(seed), counted=options.counted)}
        outcome["seconds"] = round(time.monotonic() - start, 1)
        done.append(outcome)
        _tell(outcome, options.counted)
        if options.tally:
            with options.tally.open("a") as file:
                file.write(json.dumps(outcome) + "\n")
    problems = lose_power(laboratory, Random(first), options.states) if options.states else []
    shutil.rmtree(folder)
    if problems:
        print(f"problems after a power loss: {len(problems):,}")
    _sum_up([*before, *done])
    sys.exit(1 if problems or any(each["problems"] for each in done) else 0)


def prepared(module: str) -> tuple[Path, Control]:
    """Starts this process again with the interposer, and warms it up: a scratch folder, which holds
    the user's cache from now on, and the control of faults. Ends the process where none can be had.
    """
    if not has_compiler():
        print("skipped: the fault campaign needs gcc (apt-get install gcc)")
        sys.exit()
    control = preloaded(module)
    from tests.faults.scenarios import PLAIN
    from tests.faults.warm import warm_up

    ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1)
    folder = Path(tempfile.mkdtemp(prefix="faults-")).resolve()
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    warm_up([*PLAIN, f"runs_dir={folder / 'warm'}"])
    return folder, control


def _read(tally: Path | None) -> list[dict[str, Any]]:
    if tally is None or not tally.exists():
        return []
    return [json.loads(line) for line in tally.read_text().splitlines()]


def _tell(outcome: dict[str, Any], counted: bool) -> None:
    faults = "; ".join(outcome["faults"])
    print(f"{outcome['seed']:5} {outcome['kind']:10} {faults} ({outcome['seconds']} s)", flush=True)
    for problem in outcome["problems"][:8]:
        print(f"      {problem}")
    if outcome["problems"]:
        same = f"--draws 1 --seed {outcome['seed']}{' --counted' * counted}"
        print(f"      again: python -m tests.faults.campaign {same}")
        print(f"      lmkit {outcome['line']}", flush=True)


def _sum_up(outcomes: list[dict[str, Any]]) -> None:
    met, failed = Counter(), Counter()
    for each in outcomes:
        for name in each["met"]:
            met[name] += 1
            failed[name] += bool(each["problems"])
    kinds = Counter(each["kind"] for each in outcomes)
    print(f"{len(outcomes):,} draws: {', '.join(f'{n:,} {kind}' for kind, n in kinds.items())}")
    for name, number in sorted(met.items()):
        print(f"{name:12} {number:6,} met {failed[name]:6,} in draws that failed")
    seeds = [each["seed"] for each in outcomes if each["problems"]]
    print(f"failed: {seeds}" if seeds else "no draw failed")


if __name__ == "__main__":
    main()
