"""Trains one configuration, or goes on with it, or finds it finished: `lmkit train`."""

from __future__ import annotations

from omegaconf import DictConfig

from lmkit.cli.entry import entry_point, plain_config
from lmkit.errors.user_error import UserError


@entry_point("train")
def main(config: DictConfig) -> float:
    """Composes, then hands over; returns the best valid perplexity, which sweepers minimise."""
    plain = plain_config(config)
    if config["dry_run"]:
        raise UserError("dry_run=true is for sweeps: say multirun_sweeps=NAME or --multirun")
    from lmkit.training.run import run  # torch: only now, so that --help is quick

    valid_ppl = run(plain).read_result().metrics["valid_ppl"]
    assert isinstance(valid_ppl, float)
    return valid_ppl
