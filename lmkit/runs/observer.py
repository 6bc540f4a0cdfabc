"""The contract between a training run and loggers that follow more than its metrics."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol, TypeVar, runtime_checkable

from lmkit.runs.folder import RunFolder
from lmkit.runs.names import RunNames


class _Finalized(Protocol):
    def finalize(self, status: str) -> None: ...


_Logger = TypeVar("_Logger", bound=_Finalized)


@runtime_checkable
class RunObserver(Protocol):
    """Receives a run's events in the order of its methods; a logger with these is an observer."""

    def begin(self, run: RunFolder, config: Mapping[str, object], names: RunNames) -> None:
        """The folder is prepared, and the first step follows.

        Args:
            config: the composed configuration, as plain data.
        """

    def epoch_spectrum(self, split: str, matrix: str) -> None:
        """`spectra/epoch_<epoch>_<split>_<matrix>.npz` is new; the epoch's row comes next."""

    def concluded(self, metrics: Mapping[str, object], cost: Mapping[str, object]) -> None:
        """The run has these final metrics and this cost; its spectra on test are in their files.

        Every row of metrics has been logged, including the test row. Nothing follows.

        Args:
            metrics: as they will be in `result.json`.
            cost: likewise.
        """


def tell(loggers: Iterable[object], event: Callable[[RunObserver], None]) -> None:
    """Tells the observers among `loggers` of an event; if one fails, the run goes on."""
    for logger in loggers:
        if isinstance(logger, RunObserver):
            with going_on(logger):
                event(logger)


def allowance(logger: object, quiet: bool = False) -> AbstractContextManager[None]:
    """Within it a logger may fail, and the run continues; lmkit's own may not: they write results,
    or go on by themselves.

    Args:
        quiet: without a line that says so.
    """
    is_ours = type(logger).__module__.startswith("lmkit.")
    return nullcontext() if is_ours else going_on(logger, quiet)


def finalized_safely(logger: _Logger) -> _Logger:
    """The logger, whose `finalize`, which Lightning calls, may fail as well."""
    finalize = logger.finalize

    def within_allowance(status: str) -> None:
        with allowance(logger):
            finalize(status)

    logger.finalize = within_allowance  # type: ignore[method-assign]
    return logger


@contextmanager
def going_on(logger: object, quiet: bool = False) -> Iterator[None]:
    """Whatever a logger raises within is reported in one line, and the run continues."""
    try:
        yield
    except Exception as error:  # a logger's failure must not end the run
        reason = " ".join(str(error).split())
        if not quiet:
            print(f"{type(logger).__name__} failed, the run continues: {reason}", flush=True)
