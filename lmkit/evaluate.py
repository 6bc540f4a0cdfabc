"""Measures the perplexity of a run from its checkpoint: `python -m lmkit.evaluate run=FOLDER`."""

from __future__ import annotations

from omegaconf import DictConfig

from lmkit.cli import entry_point, plain_config
from lmkit.errors import UserError, require_choice, require_count


@entry_point("evaluate")
def main(config: DictConfig) -> None:
    """Checks the options, then loads the run and prints a table."""
    options = plain_config(config)
    require_choice("split", options["split"], ("train", "valid", "test"))
    require_choice("checkpoint", options["checkpoint"], ("best", "last"))
    if options["threads"] is not None:
        require_count("threads", options["threads"])
    if not isinstance(options["run"], str):
        raise UserError(f"run must be a run folder, but is {options['run']!r}")
    from lmkit.evaluation.load import load_run
    from lmkit.evaluation.perplexity import show_perplexity

    loaded = load_run(
        options["run"], options["checkpoint"], options["data_root"], options["threads"]
    )
    show_perplexity(loaded, options["split"])


if __name__ == "__main__":
    main()
