"""Checks the points of a sweep for `lmkit.sweeps.multirun`: `python -m lmkit.cli.check_points`.

It reads JSON from stdin (whether there is a GPU, and the configurations) and writes the outcome as
JSON to stdout. What points share is checked once. A model is made on the meta device, which
computes nothing, once for all points that share it.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from lmkit.cli.main import find_own_classes
from lmkit.data.corpus import Corpus, TextSplits
from lmkit.data.datamodule import WindowsDataModule
from lmkit.errors.user_error import UserError
from lmkit.experiment.definition import define
from lmkit.experiment.model_size import model_without_weights
from lmkit.experiment.objects import make_callbacks, make_data, require_fit, try_rest

Config = dict[str, Any]

NUM_WORDS = 100_000  # a user's class may need many; on the meta device they take no memory
_WITH_MODEL = ("trunk", "head", "module", "objective", "optimizer", "schedule", "callbacks")
_WITHOUT_MODEL = ("trigger", "stopping", "callbacks", "logger", "conclusion", "trainer")


class Checker:
    """Checks one configuration after another, remembering what it has seen."""

    def __init__(self, has_gpu: bool | None) -> None:
        self._has_gpu = has_gpu
        self._corpora: dict[str, tuple[Corpus, str]] = {}
        self._seen: set[str] = set()

    def check(self, config: Config) -> str:
        """The name of the run's folder. Raises: UserError for what training would refuse."""
        run = define(config, self._has_gpu, self._corpora)

        def with_model() -> None:
            try:
                model = model_without_weights(config, NUM_WORDS)
            except UserError as error:
                if isinstance(error.__cause__, RuntimeError):
                    return  # it may be well with values: its run will say
                raise
            make_callbacks(config, model)

        # of these three the classes must fit; each is made below
        kinds = [_target(config[name]) for name in ("windows", "module", "trunk")]
        self._once("together", [config["data"], kinds], lambda: require_fit(config, run.source))
        # no optimizer is refused because of the trunk: each is made once, not each pair
        for other in ("trunk", "optimizer"):
            sections = {name: config[name] for name in _WITH_MODEL if name != other}
            self._once(f"model, but for its {other},", sections, with_model)
        self._once("rest", [config[name] for name in _WITHOUT_MODEL], lambda: try_rest(config))
        self._once("windows", config["windows"], lambda: _check_windows(config))
        return run.folder.path.name

    def _once(self, what: str, section: object, check: Callable[[], object]) -> None:
        key = f"{what} {json.dumps(section, sort_keys=True)}"
        if key not in self._seen:
            check()
            self._seen.add(key)


def _target(section: Any) -> Any:
    return section.get("_target_") if isinstance(section, dict) else section


def _check_windows(config: Config) -> None:
    def data_of(num_tokens: int) -> object:
        tokens = np.zeros(num_tokens, np.int64)
        return make_data(config, TextSplits(("a",), tokens, tokens, tokens))

    data = data_of(0)  # refuses batch sizes that are no counts
    if isinstance(data, WindowsDataModule):
        longest = max(data.batch_size, data.valid_batch_size, data.test_batch_size)
        data = data_of(4 * longest)
        assert isinstance(data, WindowsDataModule)
        data.train_batches, data.eval_batches("valid"), data.eval_batches("test")


def main() -> None:
    """Reads from stdin; prints [runs, error] in JSON: the runs of the points up to the first bad
    one, and what is wrong with it."""
    find_own_classes()
    sent = json.load(sys.stdin)
    checker = Checker(sent["has_gpu"])
    runs, error = [], None
    try:
        for config in sent["configs"]:
            runs.append(checker.check(config))
    except UserError as refused:
        error = str(refused)
    print(json.dumps([runs, error]))


if __name__ == "__main__":
    main()
