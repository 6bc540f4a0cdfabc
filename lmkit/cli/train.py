"""Trains one configuration, continues it, or finds it finished: `lmkit train`."""

from __future__ import annotations

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from lmkit.cli.entry import entry_point, plain_config
from lmkit.errors.user_error import UserError
from lmkit.runs.names import name_with_head


@entry_point("train")
def main(config: DictConfig) -> float:
    """Trains the configuration.

    Returns: the best valid perplexity, for sweepers that search.
    """
    if config.dry_run:
        raise UserError("dry_run=true is for sweeps: say multirun_sweeps=NAME or --multirun")
    plain = plain_config(config)
    plain["name"] = name_with_head(plain["name"], HydraConfig.get().overrides.task)
    from lmkit.evaluation.full_run import run  # imports torch, which --help must not wait for

    return float(run(plain).read_result().metrics["valid_ppl"])
