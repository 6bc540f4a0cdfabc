"""Breaks saving and resuming on purpose, place by place, and lets tests or the campaign find each:

    python -m tests.faults.mutants [--campaign] [NAME ...]

A mutant changes one line of a function in this process. The tests of `TESTS` follow, until one
fails. Where none does, draws of the campaign follow, from seed 1 on, until one fails. A mutant that
outlives the bound has survived: there is a gap. `--campaign` leaves the tests out.
"""

import argparse
import functools
import importlib
import inspect
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest

from tests.faults.campaign import prepared

SWITCH = "lmkit.training.callbacks.asgd_switch:AsgdSwitch"
EPOCH_END = "lmkit.training.callbacks.epoch_end:EpochEnd"
MODULE = "lmkit.training.head_module:HeadModule"
BATCHES = "lmkit.data.windows:EpochBatches"
TESTS = (
    "tests/training/test_checkpoint_files.py",
    "tests/training/callbacks/test_asgd_switch.py",
    "tests/integration/test_kept_state.py",
    "tests/claims/test_leaving.py",
)


class Mutant(NamedTuple):
    """A line of a function, and what it becomes."""

    name: str
    function: str  # module:Class.function
    line: str  # or the part of it that changes
    becomes: str


MUTANTS = (
    Mutant("the count of averages is forgotten", f"{SWITCH}.load_state_dict",
           'self.count = state["switched_after"], state["count"]',
           'self.count = state["switched_after"], 0'),
    Mutant("the count of averages is not saved", f"{SWITCH}.state_dict",
           '"count": self.count', '"count": 0'),
    Mutant("the averages are forgotten", f"{SWITCH}.load_state_dict",
           'self.averages = state["averages"]', "self.averages = {}"),
    Mutant("the switch is forgotten", f"{SWITCH}.load_state_dict",
           'self.switched_after, self.count = state["switched_after"], state["count"]',
           'self.count = state["count"]'),
    Mutant("the trigger's history is forgotten", f"{SWITCH}.load_state_dict",
           'self.trigger.load_state_dict(state["trigger"])', "pass"),
    Mutant("the best perplexity is forgotten", f"{EPOCH_END}.load_state_dict",
           'self.best_ppl, self.best_epoch = state["best_ppl"], state["best_epoch"]', "pass"),
    Mutant("the best epoch is not saved", f"{EPOCH_END}.state_dict",
           '"best_epoch": self.best_epoch', '"best_epoch": 1'),
    Mutant("the train perplexity of the best epoch is forgotten", f"{EPOCH_END}.load_state_dict",
           'self.train_ppl_at_best = state["train_ppl_at_best"]', "pass"),
    Mutant("the place among the batches is forgotten", f"{EPOCH_END}.load_state_dict",
           'self.batches = state["batches"]', "pass"),
    Mutant("what patience has seen is forgotten", f"{EPOCH_END}.load_state_dict",
           'list(state["history"])', "[]"),
    Mutant("a stop by another callback is forgotten", f"{EPOCH_END}.load_state_dict",
           'state["called_off"], list', "False, list"),
    Mutant("a batch is committed after it is saved", f"{EPOCH_END}.on_train_batch_end",
           "train_batches.commit(batch)\n        self.batches = train_batches.state_dict()",
           "self.batches = train_batches.state_dict()\n        train_batches.commit(batch)"),
    Mutant("a batch is trained on twice", f"{BATCHES}.load_state_dict",
           'state["windows_done"]', 'max(0, state["windows_done"] - 1)'),
    Mutant("best.ckpt is not linked on resume", f"{EPOCH_END}.load_state_dict",
           "self._link_best()  #", "pass  #"),
    Mutant("rows are not restored", f"{EPOCH_END}.on_fit_start",
           "self.run.metrics.restore(self.step, self.epoch, self.metrics)", "pass"),
    Mutant("the checkpoint's copy of the rows is empty", f"{EPOCH_END}.on_save_checkpoint",
           "self.run.metrics.copy()", '""'),
    Mutant("the state of random numbers is forgotten", f"{MODULE}.restore",
           'torch.set_rng_state(progress["cpu_rng"])', "pass"),
    Mutant("the sum of the train loss is forgotten", f"{MODULE}.restore",
           "self.train_nll.total = total.to(self.device)", "pass"),
    Mutant("the count of the train loss is forgotten", f"{MODULE}.restore",
           "self.train_nll.num_tokens = num_tokens.to(self.device)", "pass"),
    Mutant("the hidden state is not saved", "lmkit.training.language_model:LanguageModel"
           ".on_save_checkpoint", 'checkpoint["lmkit_progress"]["hidden"] = hidden',
           'checkpoint["lmkit_progress"]["hidden"] = None'),
    Mutant("an epoch's validation is skipped after a signal",
           "lmkit.training.callbacks.epoch_end:_in_validation",
           'progress["completed"] = progress["processed"]', "pass"),
    Mutant("what stood before validation is not saved", f"{EPOCH_END}._hold",
           "self.held = _in_validation(as_it_stands(checkpoint, kept))",
           "pass"),
    Mutant("a checkpoint is written in place", "lmkit.training.checkpoint_files:write_tensors",
           "replace_atomically(\n        path, lambda file: write_checked(file, lambda out: "
           "torch.save(content, out)), check\n    )",
           'with path.open("wb") as file:\n        write_checked(file, lambda out: '
           "torch.save(content, out))"),
    Mutant("a lock is not asked for before a checkpoint", "lmkit.training.checkpoint_files"
           ":write_tensors", "(content, out)), check", "(content, out))"),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="parts of mutants' names; none: all of them")
    parser.add_argument("--draws", type=int, default=60, help="at most, for each mutant")
    parser.add_argument("--campaign", action="store_true", help="no tests, draws alone")
    options = parser.parse_args()
    folder, control = prepared("tests.faults.mutants")
    # slow to import: once the process has its library
    from tests.faults.laboratory import Laboratory

    survived = []
    if not options.campaign and (broken := _failing()):
        sys.exit(f"without any mutant there fails {broken}")
    print("| mutant | falls to | s |\n| --- | --- | --- |", flush=True)
    for number, mutant in enumerate(MUTANTS):
        if options.names and not any(name in mutant.name for name in options.names):
            continue
        begun = time.monotonic()
        place = folder / f"mutant-{number}"
        place.mkdir()
        with mutated(mutant):
            found = "" if options.campaign else _failing()
            found = found or _hunted(Laboratory(place, control), options.draws)
        if not found:
            survived.append(mutant.name)
        words = found.removeprefix("tests/")[:140].replace("|", "/").replace("\n", " ")
        words = words or "**survived**"
        print(f"| {mutant.name} | {words} | {time.monotonic() - begun:.0f} |", flush=True)
    shutil.rmtree(folder)
    sys.exit(1 if survived else 0)


class _FirstFailure:
    """A plugin of pytest."""

    def __init__(self) -> None:
        self.name = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid


def _failing() -> str:
    """The first of `TESTS` that fails, in a process forked from this one; "" where none does."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        for descriptor in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
        first = _FirstFailure()
        options = ("-x", "-q", "-p", "no:cacheprovider", "-m", "not slow")
        status = pytest.main([*options, *TESTS], plugins=[first])
        name = first.name or ("" if status == pytest.ExitCode.OK else f"pytest: {status!r}")
        os.write(writing, name.encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        name = pipe.read()
    os.waitpid(child, 0)
    return name


def _hunted(laboratory: Any, draws: int) -> str:
    """The first draw that fails, and its first problem; "" where there is none."""
    from tests.faults.trial import draw

    for seed in range(1, draws + 1):
        # a sweep saves and resumes as its runs do, and takes three times as long
        problems = draw(laboratory, Random(seed), counted=True, sweeps=False)["problems"]
        if problems:
            return f"draw {seed}: {problems[0].replace(str(laboratory.runs_dir), 'RUNS')}"
    return ""


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """Processes that are forked meanwhile have the mutant."""
    module_name, _, path = mutant.function.partition(":")
    module = importlib.import_module(module_name)
    function = _plain(functools.reduce(getattr, path.split("."), module))
    source, text = inspect.getsource(module), inspect.getsource(function)
    assert text.count(mutant.line) == 1, f"{mutant.name}: {mutant.function} has no such line"
    changed = source.replace(text, text.replace(mutant.line, mutant.becomes))
    kept = function.__code__
    function.__code__ = _code(compile(changed, module.__file__ or "", "exec"), path)
    try:
        yield
    finally:
        function.__code__ = kept


def _plain(function: Any) -> FunctionType:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    assert isinstance(function, FunctionType)
    return function


def _code(code: CodeType, name: str) -> CodeType:
    """The code of a function within a module's, by its qualified name."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_qualname == name:
                return inner
            if name.startswith(f"{inner.co_qualname}."):
                return _code(inner, name)
    raise LookupError(name)


if __name__ == "__main__":
    main()
