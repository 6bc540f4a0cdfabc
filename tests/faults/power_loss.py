"""What a run wrote is cut at every sync, and its line typed again on what a power loss leaves."""

import os
from random import Random

from tests.faults import recording
from tests.faults.comparison import contents, differences
from tests.faults.laboratory import LIMIT_S, Laboratory, Undisturbed, age_litter
from tests.faults.recording import State, Tree
from tests.faults.scenarios import PLAIN
from tests.faults.warm import Start, typed


def lose_power(laboratory: Laboratory, random: Random, number: int) -> list[str]:
    """Problems with `number` of the states that a power loss may leave, drawn at random."""
    line = (*PLAIN, f"runs_dir={laboratory.runs_dir}")
    problems: list[str] = []

    def use(start: Start) -> None:
        undisturbed = laboratory.undisturbed(line, start)
        left = list(recording.states(_recorded(laboratory, start)))
        chosen = random.sample(left, min(number, len(left)))
        print(f"power loss: {len(left):,} states, {len(chosen):,} of them drawn", flush=True)
        for state in chosen:
            found = _replay(laboratory, start, state, undisturbed)
            for problem in found[:4]:
                print(f"      {state.what}: {problem}", flush=True)
            problems.extend(found)

    typed(line, use)
    return problems


def _recorded(laboratory: Laboratory, start: Start) -> list[recording.Operation]:
    """The operations of a run, which are all that it did to its files."""
    laboratory.clear()
    laboratory.output.write_bytes(b"")
    file = laboratory.runs_dir.parent.parent / "recording"
    laboratory.control.watch(laboratory.runs_dir.parent)
    laboratory.control.trace = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    status = laboratory.start(start).wait(LIMIT_S)
    assert status == 0, laboratory.output.read_text()[-2000:]
    os.close(laboratory.control.trace)
    laboratory.control.watching = 0
    operations = recording.read(file.read_bytes())
    whole = Tree()
    for each in operations:
        whole.apply(each)
    written = {name: bytes(whole.content.get(number, b"")) for name, number in whole.names.items()}
    there = {str(path): content for path, content in contents(laboratory.runs_dir).items()}
    missed = {name for name in {**written, **there} if written.get(name) != there.get(name)}
    assert not missed, f"the recording misses calls: {missed}"
    return operations


def _replay(
    laboratory: Laboratory, start: Start, state: State, undisturbed: Undisturbed
) -> list[str]:
    laboratory.clear()
    laboratory.output.write_bytes(b"")
    state.tree.write()
    status = laboratory.start(start).wait(LIMIT_S)
    printed = laboratory.output.read_text("utf-8", "replace")
    if age_litter(laboratory.runs_dir):
        laboratory.start(start).wait(LIMIT_S)
    problems = [] if status == 0 else [f"exit status {status}: {printed[-300:]!r}"]
    return problems + differences(laboratory.runs_dir, undisturbed.folder)
