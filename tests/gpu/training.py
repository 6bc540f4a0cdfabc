"""The pieces of the step train: PTB's Softmax to its end, then MoS, as far as the time goes."""

from __future__ import annotations

import argparse
import csv
import io
import json
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pieces import Outcome, Piece

if TYPE_CHECKING:
    from steps import Work

EXPERIMENTS = {"softmax": "penn_softmax", "mos": "penn_mos"}
GRAPHS = "callbacks=[default,cuda_graphs]"
EVER = 24 * 60.0  # minutes: the command's own limit ends it


def train_pieces(args: argparse.Namespace, work: Work) -> list[Piece]:
    """By CUDA graphs; without them where a run by graphs ended before its first epoch."""
    found = []
    for name, experiment in EXPERIMENTS.items():
        plainly = work.found("train").get(name, {}).get("without_graphs", args.device == "cpu")
        runs_dir = work.folder / "runs" / (name + "_plain" * plainly)
        command = [sys.executable, "-m", "lmkit", "train", f"experiment={experiment}"]
        command += [] if plainly else [GRAPHS]
        command += [f"runs_dir={runs_dir}", "logger=csv", "callbacks.progress_bar=null"]
        command += ["callbacks.spectrum.every=10", "callbacks.checkpoints.every_minutes=1"]
        command += [f"trainer.accelerator={'gpu' if args.device == 'cuda' else 'cpu'}"]
        command += TINY if args.tiny else [f"data.root={args.data}"]

        def read(text: str, status: int, runs_dir: Path = runs_dir, name: str = name) -> Outcome:
            return of_run(runs_dir, status, name, work)

        grace_s = 30.0 if args.device == "cuda" else 10.0
        piece = Piece(name, command + args.train_options, read, EVER, 60.0, grace_s, True)
        found.append(piece._replace(needs_s=5.0) if args.tiny else piece)
    return found


TINY = ["data=toy", "data.num_words=50", "data.train_tokens=4000", "data.valid_tokens=400"]
TINY += ["data.test_tokens=300", "trunk.emb_dim=8", "trunk.hidden_dim=12", "trunk.out_dim=8"]
TINY += ["windows.batch_size=8", "switch_epoch=1", "max_epochs=3", "threads=1"]
TINY += ["conclusion.published_contexts=null"]


def of_run(runs_dir: Path, status: int, name: str, work: Work) -> Outcome:
    """How far a run has come, and its curve as a file of the results."""
    folders = sorted(runs_dir.glob("*/metrics.csv"))
    rows = epochs(folders[0]) if folders else []
    if rows:
        work.write(f"train_{name}.csv", as_csv(rows))
    seconds = [float(row["seconds_per_epoch"]) for row in rows if row.get("seconds_per_epoch")]
    outcome: Outcome = {"epochs": len(rows), "unfinished": True, "says": "no epoch yet"}
    if seconds:
        outcome["seconds_per_epoch"] = statistics.median(seconds)
    if rows:
        outcome["valid_ppl"] = float(rows[-1]["valid/ppl"])
        outcome["says"] = f"{len(rows)} epochs, valid perplexity {outcome['valid_ppl']:.2f}"
    results = sorted(runs_dir.glob("*/result.json"))
    if results:
        result: dict[str, Any] = json.loads(results[0].read_text("utf-8"))
        outcome |= {"unfinished": False, "metrics": without_lists(result["metrics"])}
        outcome |= {"cost": result["cost"], "provenance": result["provenance"]}
        outcome["says"] = f"finished, test perplexity {result['metrics']['test_ppl']:.2f}"
    elif status not in (-1, 75):  # it was not asked to stop
        if not rows and "_plain" not in runs_dir.name:
            outcome |= {"without_graphs": True, "says": "failed by graphs; goes on without them"}
        else:
            outcome |= {"unfinished": False, "error": f"ended with status {status}, see log.txt"}
    if "_plain" in runs_dir.name:
        outcome["without_graphs"] = True
    return outcome


def epochs(metrics: Path) -> list[dict[str, str]]:
    """The rows of metrics.csv that end an epoch."""
    with metrics.open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row.get("valid/ppl")]


def as_csv(rows: list[dict[str, str]]) -> str:
    """Epochs and their perplexities and cost."""
    columns = ["step", "epoch", "train/ppl", "valid/ppl", "valid/ppl_raw", "averaging"]
    columns += ["seconds_per_epoch", "tokens_per_second", "peak_memory_mib"]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def without_lists(metrics: dict[str, Any]) -> dict[str, Any]:
    """Plain numbers, and those of the spectrum."""
    spectrum = metrics.get("test_spectrum", {})
    plain = {key: v for key, v in metrics.items() if not isinstance(v, dict | list)}
    kept = {k: v for k, v in spectrum.items() if not isinstance(v, list) and k != "unresolved"}
    return plain | {"test_spectrum": kept}
