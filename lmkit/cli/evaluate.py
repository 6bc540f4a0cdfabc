"""Measures the perplexity of a run from its checkpoint: `lmkit evaluate run=FOLDER`."""

from __future__ import annotations

from omegaconf import DictConfig

from lmkit.cli.entry import entry_point, plain_config
from lmkit.errors.user_error import UserError, require_choice, require_count


@entry_point("evaluate")
def main(config: DictConfig) -> None:
    """Checks the options, then loads the run, measures it and prints a table."""
    options = plain_config(config)
    require_choice("split", options["split"], ("train", "valid", "test"))
    require_choice("checkpoint", options["checkpoint"], ("best", "last"))
    if options["threads"] is not None:
        require_count("threads", options["threads"])
    if options["search_tokens"] is not None:
        require_count("search_tokens", options["search_tokens"])
    path, method = options.pop("run"), options.pop("method")
    if not isinstance(path, str):
        raise UserError(f"run must be a run folder, but is {path!r}")
    from lmkit.evaluation.after_training import EvaluateOptions, evaluate

    evaluate(path, method, EvaluateOptions(**options))
