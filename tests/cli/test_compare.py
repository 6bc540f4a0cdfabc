"""Two groups of runs compared: which runs are meant, what is tested, what is written."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from scipy import stats

from lmkit.comparison.group_report import compare_groups, ranks_on_test
from lmkit.errors.user_error import UserError
from lmkit.runs.selection import select_runs
from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder

PERPLEXITIES = {"gss": [56.1, 56.4, 56.2, 56.9], "softmax": [57.0, 57.2, 56.8]}


def write_run(folder: Path, name: str, seed: int, test_ppl: float, ranks: dict[int, int]) -> Path:
    """A finished run as far as its comparison reads it."""
    path = folder / f"{name}-{seed:012d}"
    (path / "analysis").mkdir(parents=True)
    config = {"name": name, "seed": seed, "head": {"transform": {"k": 2.5}}}
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    content = {"digest": "0", "settings": {"data_sha256": "0" * 64, "seed": seed}, "names": {}}
    (path / "identity.json").write_text(json.dumps({"schema_version": 2, **content}))
    (first, rank), *others = ranks.items()
    spectrum = {"num_contexts": first, "press_rank": rank}
    for contexts, other in others:
        content = {"spectrum": {"num_contexts": contexts, "press_rank": other}}
        file = path / "analysis" / f"rank_test_log_probs_{contexts}.json"
        file.write_text(json.dumps(content))
    result = {
        "schema_version": 1,
        "experiment": name,
        "identity": f"{seed:012d}",
        "metrics": {"valid_ppl": test_ppl + 2, "test_ppl": test_ppl, "test_spectrum": spectrum},
        "cost": {},
        "provenance": {},
        "budget": {"max_epochs": 1, "patience": None, "epochs": 1, "stopped": "max_epochs"},
    }
    (path / "result.json").write_text(json.dumps(result))
    return path


@pytest.fixture
def runs(tmp_path) -> Path:
    """Runs of two heads, one damaged and one unfinished among them."""
    for name, perplexities in PERPLEXITIES.items():
        for seed, ppl in enumerate(perplexities):
            ranks = {4000 + seed: 7, 500: 100 + 10 * seed, 300: 50}
            write_run(tmp_path, name, seed, ppl, ranks)
    (write_run(tmp_path, "gss", 8, 1.0, {500: 1}) / "result.json").write_text("{")
    (write_run(tmp_path, "gss", 9, 1.0, {500: 1}) / "result.json").unlink()
    return tmp_path


def names(selection) -> list[str]:
    return [run.folder.path.name for run in selection.runs]


def test_patterns_folders_and_options_mean_runs(runs):
    selection = select_runs("a", f"{runs}/gss-*")
    assert names(selection) == [f"gss-{seed:012d}" for seed in range(4)]
    assert set(selection.left_out) == {"gss-000000000008", "gss-000000000009"}
    assert "result.json" in selection.left_out["gss-000000000008"]
    assert len(select_runs("a", str(runs)).runs) == 7
    assert names(select_runs("a", f"{runs} name:softmax seed:1")) == ["softmax-000000000001"]
    assert len(select_runs("a", f"{runs} head.transform.k=2.5").runs) == 7
    assert names(select_runs("a", str(runs / "gss-000000000002"))) == ["gss-000000000002"]


def test_a_sweeps_folder_means_its_points(runs):
    point = Point("seed=1", [], "softmax-000000000001", "softmax", 1, None)
    SweepFolder.of(Manifest("mine", str(runs), "/", 0, [point])).save()
    assert names(select_runs("b", str(runs / "sweeps" / "mine"))) == ["softmax-000000000001"]


@pytest.mark.parametrize("said", ["nowhere", "", "{runs} seed:77", "{runs} seed", "{runs}/gss-*8"])
def test_what_means_no_run_is_an_error_naming_the_option(runs, said):
    with pytest.raises(UserError, match=r"^b"):
        select_runs("b", said.format(runs=runs))


def test_tests_are_scipys_and_ranks_at_the_most_contexts_that_all_have(runs):
    groups = [select_runs("a", f"{runs}/{name}-*").runs for name in PERPLEXITIES]
    results = [[run.result for run in group] for group in groups]
    ranks = [[ranks_on_test(run.folder, run.result) for run in group] for group in groups]
    found, contexts = compare_groups(*results, *ranks, seed=0)
    theirs = stats.ttest_ind(*PERPLEXITIES.values())
    assert found["test_ppl"].p_student == pytest.approx(theirs.pvalue)
    assert found["valid_ppl"].difference == pytest.approx(56.4 - 57.0)
    assert contexts == 500
    assert (found["press_rank"].mean_a, found["press_rank"].mean_b) == (115, 110)
    without, contexts = compare_groups(*results, *[[{5: 1}, {6: 1}]] * 2, seed=0)
    assert contexts is None
    assert "press_rank" not in without


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "lmkit", "compare", *arguments]
    return subprocess.run(line, capture_output=True, text=True)


def test_the_command_prints_and_writes(runs):
    groups = (f"a={runs} name:gss", f"b={runs}/softmax-*")
    done = command(*groups, f"out={runs}/c.json")
    assert done.returncode == 0, done.stderr
    assert "left out: gss-000000000009" in done.stdout
    content = json.loads((runs / "c.json").read_text())
    assert content["comparisons"]["test_ppl"]["n_a"] == 4
    assert command(*groups, f"out={runs}/c.csv").returncode == 0
    rows = list(csv.DictReader((runs / "c.csv").open()))
    assert [row["measure"] for row in rows] == ["valid_ppl", "test_ppl", "press_rank"]
    assert float(rows[1]["low"]) == content["comparisons"]["test_ppl"]["low"]
    identity = runs / "softmax-000000000001" / "identity.json"
    identity.write_text(identity.read_text().replace("0" * 64, "1" * 64))
    assert "one corpus" in command(*groups).stderr
    assert "both hold gss" in command(groups[0], f"b={runs}").stderr
