"""The table that a run ends with. Without torch: a finished run is shown at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console

from lmkit.presentation.tables import key_values
from lmkit.presentation.terminal import to_terminal
from lmkit.runs.folder import RunFolder


def show(folder: RunFolder) -> None:
    """Prints the closing table of a finished run."""
    result = folder.read_result()
    metrics, spectrum = result.metrics, result.metrics["test_spectrum"]
    start = result.provenance.get("finetuned_from", {})
    rows = []
    for split in ("train", "valid", "test"):
        name = f"{split}_ppl"
        before = f" (before: {start[name]:.2f})" if name in start else ""
        rows.append((f"{split} perplexity", f"{metrics[name]:.2f}{before}"))
    rows += _of_the_text(metrics)
    if "floor_ppl" in metrics:
        rows.append(("entropy floor of the language", f"{metrics['floor_ppl']:.2f}"))
        rows.append(("true rank of log P", str(metrics["true_rank"])))
    contexts = f"{spectrum['num_contexts']:,} test contexts"
    rows.append((f"Press rank ({contexts})", _or_reason(spectrum, "press_rank")))
    for epsilon, rank in spectrum["effective_rank"].items():
        rows.append((f"{epsilon}-effective rank", "unresolved" if rank is None else str(rank)))
    seconds = result.cost["seconds_per_epoch"]
    if seconds is not None:
        rows.append(("seconds an epoch", f"{seconds:.1f}"))
    rows.append(("best epoch", f"{metrics['best_epoch']} of {result.budget.epochs}"))
    Console().print(to_terminal(key_values(folder.path.name, rows)))
    print(f"run folder: {folder.path}")
    print(f"curves:     {folder.path / 'curves.svg'}")
    print(f"spectrum:   {folder.path / 'spectrum.svg'}")


def _of_the_text(metrics: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What compares with runs whose tokens are others."""
    if "test_text" not in metrics:
        return
    words = metrics["test_text"]["words"]
    if words != metrics["test_text"]["tokens"]:
        yield f"test perplexity a word ({words:,} words)", f"{metrics['test_word_ppl']:.2f}"
    yield "test bits a byte", f"{metrics['test_bits_per_byte']:.4f}"


def _or_reason(spectrum: dict[str, Any], name: str) -> str:
    value = spectrum[name]
    return str(value) if value is not None else f"unresolved: {spectrum['unresolved'][name]}"
