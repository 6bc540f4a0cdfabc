"""The script of docs/sweeps.md that searches with Optuna, on tiny runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import lmkit
from lmkit.runs.folder import RunFolder
from tests.pages import REPOSITORY
from tests.training.test_trainer import TINY

optuna = pytest.importorskip("optuna")
pytest.importorskip("sqlalchemy")
PAGE = (REPOSITORY / "docs/sweeps.md").read_text()
SCRIPT = PAGE.partition("```python\n# search.py\n")[2].partition("```")[0]


def searched(**changes: str) -> optuna.Study:
    """The study after the script, with smaller runs and fewer of them."""
    script = SCRIPT
    small = {"options = [": f"options = [*{TINY}, ", "n_trials=30": "n_trials=2"}
    for words, others in (small | changes).items():
        assert script.count(words) == 1, words
        script = script.replace(words, others)
    names: dict[str, object] = {"__name__": "search"}
    exec(script, names)
    study = names["study"]
    assert isinstance(study, optuna.Study)
    return study


def states() -> list[str]:
    return sorted(RunFolder(path.parent).state() for path in Path("runs").glob("*/config.yaml"))


def test_it_finds_the_best_of_its_runs_and_goes_on_where_it_ended(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    searched()
    study = searched()
    assert len(study.trials) == 4
    results = [RunFolder(path.parent).read_result() for path in Path("runs").glob("*/result.json")]
    assert study.best_value == min(result.metrics["valid_ppl"] for result in results)
    # the same parameters are the same run
    assert len(results) == len({str(trial.params) for trial in study.trials})


def test_a_pruned_run_can_be_resumed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pruning = {"MedianPruner()": "ThresholdPruner(upper=0)", "n_trials=30": "n_trials=1"}
    study = searched(**pruning, **{"print(study.best_params, study.best_value)": ""})
    (trial,) = study.trials
    assert trial.state.name == "PRUNED"
    assert list(trial.intermediate_values) == [1]  # epochs
    assert states() == ["unfinished"]
    options = [f"{name}={value}" for name, value in trial.params.items()]
    told: list[int] = []
    run = lmkit.train([*TINY, *options], lambda epoch, row: told.append(epoch))
    assert told == [2]
    assert run.result.budget.epochs == 2
    assert states() == ["finished"]
