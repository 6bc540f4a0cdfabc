"""The contract between a training run and loggers that follow more than its metrics."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

from lmkit.runs.folder import RunFolder
from lmkit.runs.names import RunNames

# what Lightning calls of a logger
_METHODS = (
    "log_hyperparams", "log_graph", "log_metrics", "save", "after_save_checkpoint", "finalize",
)  # fmt: skip


@runtime_checkable
class RunObserver(Protocol):
    """Receives a run's events in the order of its methods; a logger with these is an observer."""

    def begin(self, run: RunFolder, config: Mapping[str, object], names: RunNames) -> None:
        """The folder is prepared, and the first step follows."""

    def epoch_spectrum(self, split: str, matrix: str) -> None:
        """`spectra/epoch_<epoch>_<split>_<matrix>.npz` is new; the epoch's row comes next."""

    def concluded(self, metrics: Mapping[str, object], cost: Mapping[str, object]) -> None:
        """The run has these final metrics and this cost; its spectra on test are in their files.

        Every row of metrics has been logged, including the test row. Nothing follows.
        """


def tell(loggers: Iterable[object], event: Callable[[RunObserver], None]) -> None:
    """Tells the observers among `loggers` of an event; if one fails, the run goes on."""
    for logger in loggers:
        if isinstance(logger, RunObserver):
            with going_on(logger):
                event(logger)


def may_fail(loggers: Iterable[Any]) -> list[Any]:
    """The loggers that can connect. A method of theirs may fail from now on: one line says so, and
    the run goes on. lmkit's own stay as they are: they write results, or go on by themselves.
    """
    kept = []
    for logger in loggers:
        if type(logger).__module__.startswith("lmkit."):
            kept.append(logger)
            continue
        with going_on(logger):
            getattr(logger, "experiment", None)  # which connects; Lightning reads it, too
            for name in _METHODS:
                vars(logger)[name] = _tolerated(logger, getattr(logger, name))
            kept.append(logger)
    return kept


def _tolerated(logger: object, method: Callable[..., object]) -> Callable[..., object]:
    failed = False  # whether it has been said: each row would say it again

    @functools.wraps(method)
    def call(*args: object, **kwargs: object) -> object:
        nonlocal failed
        with going_on(logger, quiet=failed):
            return method(*args, **kwargs)
        failed = True
        return None

    return call


@contextmanager
def going_on(logger: object, quiet: bool = False) -> Iterator[None]:
    """Whatever a logger raises within is reported in one line, and the run continues."""
    try:
        yield
    except Exception as error:  # a logger's failure must not end the run
        reason = " ".join(str(error).split())
        if not quiet:
            print(f"{type(logger).__name__} failed, the run continues: {reason}", flush=True)
