"""What a command does with a finished run: repairs, tidies and shows it. Without torch.

PyTorch is imported only where a damaged file must be restored.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from lmkit.errors.user_error import UserError
from lmkit.experiment.definition import RunDefinition
from lmkit.presentation.tables import key_values
from lmkit.presentation.terminal import to_terminal
from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import LockHeld, RunLock
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.retention import locks_beside, tidy

_Restore = Callable[[RunFolder, Callable[[], None]], None]  # takes the lock's check

# why a run ended before its budget of epochs was spent
EARLY = {
    "patience": "the valid perplexity no longer improved (patience)",
    "callback": "by a callback",
}
BARS = "progress_bar"  # it changes nothing and leaves nothing


def report_finished(defined: RunDefinition) -> None:
    """Repairs what a killed process left of the run, and says that it has finished."""
    folder = defined.folder
    _mend(folder)
    _tidy(folder, defined.config["keep"])
    print(f"already finished: {folder.path}")
    try:
        trained = folder.read_config()
    except UserError:
        return  # it cannot be restored, as reported above
    late = _late_callbacks(defined.config, trained)
    if late:
        print(f"it was trained without {', '.join(late)}: a finished run calls no callbacks")


def _late_callbacks(config: Mapping[str, Any], trained: Mapping[str, Any]) -> list[str]:
    """The callbacks of `config` that a finished run was trained without, except progress bars.

    Sweeps train without these; a plain `lmkit train` has them.
    """
    return [
        f"callbacks.{name}"
        for name, section in config["callbacks"].items()
        if section is not None and trained["callbacks"].get(name) is None and name != BARS
    ]


def _mend(folder: RunFolder) -> None:
    """Restores the damaged metrics and configuration of a finished run."""
    if not MetricsFile(folder.metrics).is_finished():
        from lmkit.experiment.conclusion import restore_metrics  # brings torch

        _restore(folder, folder.metrics, restore_metrics)
    try:
        folder.read_config()
    except UserError:
        from lmkit.experiment.conclusion import restore_config

        _restore(folder, folder.config, restore_config)


def _restore(folder: RunFolder, path: Path, restore: _Restore) -> None:
    try:
        with RunLock(folder.lock) as lock:
            if folder.state() == "finished":
                restore(folder, lock.check)
                print(f"restored: {path}")
    except LockHeld:
        pass  # it resumes under a larger budget
    except UserError as error:
        print(f"{path} is damaged and cannot be restored: {error}")


def _tidy(folder: RunFolder, keep: str) -> None:
    """Removes the checkpoints that are not kept, and what a killed process left."""
    try:
        say_removed(folder, keep, tidy(folder, keep, locks_beside(folder)))
    except LockHeld:
        pass  # it resumes under a larger budget
    except (OSError, UserError) as error:
        print(f"left as it is: {error}")


def say_removed(folder: RunFolder, keep: str, paths: Sequence[Path]) -> None:
    """Prints which checkpoints `keep` has removed."""
    if paths:
        print(f"keep={keep}: {' and '.join(path.name for path in paths)} removed: {folder.path}")


def show_result(folder: RunFolder) -> None:
    """Prints the closing table of a finished run."""
    result = folder.read_result()
    metrics, spectrum = result.metrics, result.metrics["test_spectrum"]
    start = result.provenance.get("finetuned_from", {})
    rows = []
    for split in ("train", "valid", "test"):
        name = f"{split}_ppl"
        before = f" (before: {start[name]:.2f})" if name in start else ""
        rows.append((f"{split} perplexity", f"{metrics[name]:.2f}{before}"))
    rows += _text_rows(metrics)
    if "floor_ppl" in metrics:
        rows.append(("entropy floor of the language", f"{metrics['floor_ppl']:.2f}"))
        rows.append(("true rank of log P", str(metrics["true_rank"])))
    contexts = f"{spectrum['num_contexts']:,} test contexts"
    press_rank = spectrum["press_rank"]
    if press_rank is None:
        press_rank = f"unresolved: {spectrum['unresolved']['press_rank']}"
    rows.append((f"Press rank ({contexts})", str(press_rank)))
    for epsilon, rank in spectrum["effective_rank"].items():
        rows.append((f"{epsilon}-effective rank", "unresolved" if rank is None else str(rank)))
    seconds = result.cost["seconds_per_epoch"]
    if seconds is not None:
        rows.append(("seconds per epoch", f"{seconds:.1f}"))
    rows.append(("best epoch", f"{metrics['best_epoch']} of {result.budget.epochs}"))
    if result.budget.stopped in EARLY:
        rows.append(("stopped early", EARLY[result.budget.stopped]))
    Console().print(to_terminal(key_values(folder.path.name, rows)))
    if not metrics["best_epoch"]:
        print(
            "no epoch is better than the weights that the run started from, whose figures these "
            "are: choose a smaller lr"
        )
    print(f"run folder: {folder.path}")
    print(f"curves:     {folder.path / 'curves.svg'}")
    print(f"spectrum:   {folder.path / 'spectrum.svg'}")


def _text_rows(metrics: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What compares with runs on other tokens."""
    if "test_text" not in metrics:
        return
    words = metrics["test_text"]["words"]
    if words != metrics["test_text"]["tokens"]:
        yield f"test perplexity per word ({words:,} words)", f"{metrics['test_word_ppl']:.2f}"
    yield "test bits per byte", f"{metrics['test_bits_per_byte']:.4f}"
