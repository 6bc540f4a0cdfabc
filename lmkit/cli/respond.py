"""Answers contexts with trained models, and scores what they say.

    lmkit respond run=FOLDER
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import yaml
from omegaconf import DictConfig

from lmkit.cli.entry import entry_point, plain_config
from lmkit.errors.user_error import UserError, require_choice, require_count
from lmkit.runs.atomic import replace_atomically
from lmkit.runs.folder import RunFolder

if TYPE_CHECKING:  # it brings torch, and --help must not wait for it
    from lmkit.dialogue.measure import DialogueOptions

SCHEMA_VERSION = 1
MODULE = "lmkit.dialogue.module.DialogueModel"


@entry_point("respond")
def main(config: DictConfig) -> None:
    """Checks the options, measures each run that has not been, prints tables and samples."""
    plain = plain_config(config)
    options = _checked(plain)
    from lmkit.dialogue.dialogue_report import dialogue_note, dialogue_table, samples, scored_run
    from lmkit.evaluation.rank import find_runs

    found = find_runs(plain["run"])
    left_out = dict(found.left_out)
    scored = []
    for run in found.runs:
        if _config(run).get("module", {}).get("_target_") != MODULE:
            left_out[run.path.name] = "it is no dialogue run"
            continue
        measured = _measured(run, options, plain["data_root"], plain["threads"])
        scored.append(scored_run(_config(run), measured))
    for name, reason in left_out.items():
        print(f"left out: {name}: {reason}")
    if not scored:
        raise UserError(f"run={plain['run']} holds no finished dialogue run")
    from rich.console import Console

    console = Console()
    console.print(dialogue_table(scored, plain["baseline"]))
    console.print(dialogue_note(scored, plain["baseline"]), highlight=False)
    for text in samples(scored, plain["shown"]):
        console.print(text, markup=False, highlight=False)
    print(f"responses: {found.runs[0].analysis}" + (", ..." if len(scored) > 1 else ""))


def _checked(plain: dict) -> DialogueOptions:
    """The options of each measurement. Raises: UserError naming the one that is wrong."""
    require_choice("split", plain["split"], ("train", "valid", "test"))
    pairs = None if plain["pairs"] == "all" else plain["pairs"]
    counts = {"pairs": pairs, "threads": plain["threads"]}
    for option in ("beam", "max_words", "n_best", "samples"):
        require_count(option, plain[option])
    for option, value in counts.items():
        if value is not None:
            require_count(option, value)
    require_count("shown", plain["shown"], 0)
    if plain["n_best"] > plain["beam"]:
        raise UserError(
            f"n_best must be at most beam, which is {plain['beam']}, but is {plain['n_best']}"
        )
    if not isinstance(plain["run"], str):
        raise UserError(f"run must be a folder, but is {plain['run']!r}")
    from lmkit.dialogue.measure import DialogueOptions

    fields = {name: plain[name] for name in DialogueOptions._fields}
    return DialogueOptions(**fields | {"pairs": pairs})


def _config(run: RunFolder) -> dict:
    return yaml.safe_load(run.config.read_text("utf-8"))


def _measured(
    run: RunFolder, options: DialogueOptions, data_root: str | None, threads: int | None
) -> dict[str, object]:
    """What analysis/dialogue.json holds, or is made to hold now."""
    path = run.analysis / "dialogue.json"
    # a run that went on has another best epoch, and its responses are no longer these
    made_of = {"best_epoch": run.read_result().metrics["best_epoch"], "options": options._asdict()}
    if path.exists():
        known = json.loads(path.read_bytes())
        if {key: known.get(key) for key in made_of} == made_of:
            return known
    from lmkit.dialogue.measure import measure_dialogue
    from lmkit.evaluation.load import load_run
    from lmkit.evaluation.rank import progress_bar

    loaded = load_run(run.path, "best", data_root, threads)
    with progress_bar() as progress:
        task = progress.add_task(f"{run.path.name}: contexts", total=options.pairs)
        found = measure_dialogue(
            loaded.model,
            loaded.data,
            options,
            lambda done, total: progress.update(task, completed=done, total=total),
        )
    found = {"schema_version": SCHEMA_VERSION, "kind": "dialogue", **made_of, **found}
    run.analysis.mkdir(exist_ok=True)
    text = json.dumps(found, indent=2) + "\n"
    replace_atomically(path, lambda file: file.write(text.encode()))
    return found
