"""What the study keeps of finished runs."""

from pathlib import Path

import numpy as np
import pytest
from keeping import compare, copy_epochs, copy_finished, copy_measured

from lmkit.runs.analysis_files import write_analysis
from lmkit.runs.array_files import final_spectrum, read_spectrum, write_spectrum
from lmkit.runs.checksums import read_json
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.selection import select_runs
from tests.results.forging import change


def test_what_is_kept_and_put_back_is_a_finished_run(make_run, tmp_path: Path):
    run = make_run(tmp_path / "there", 1, 131.7, 66, name="penn_study")
    (run / "checkpoints").mkdir(exist_ok=True)
    (run / "checkpoints" / "last.ckpt").write_bytes(b"large")
    unfinished = make_run(tmp_path / "there", 2, 130.7, 66, name="penn_study")
    (unfinished / "result.json").unlink()
    kept, back = tmp_path / "kept", tmp_path / "back"
    assert copy_finished(tmp_path / "there", kept) == 1
    assert copy_finished(tmp_path / "there", kept) == 0
    assert copy_finished(kept, back) == 1
    (restored,) = select_runs("runs", str(back)).runs
    assert restored.result.metrics == RunFolder(run).read_result().metrics
    assert restored.folder.state() == "finished"
    assert restored.folder.read_config()["data"]["root"] is None
    assert not (back / run.name / "checkpoints").exists()


def test_rows_of_single_windows_are_not_kept(tmp_path):
    trained = MetricsFile(tmp_path / "metrics.csv")
    trained.append(1, 1, {"train/nll": 6.9})
    trained.append(7, 1, {"valid/ppl": 99.25})
    trained.append(8, 2, {"train/nll": 4.5, "grad_norm": 0.1})
    trained.append(9, 2, {"test/ppl": 98.5})
    (tmp_path / "kept").mkdir()
    copy_epochs(tmp_path, tmp_path / "kept")
    assert MetricsFile(tmp_path / "kept" / "metrics.csv").read_finished() == [
        {"step": 7, "epoch": 1, "valid/ppl": 99.25},
        {"step": 9, "epoch": 2, "test/ppl": 98.5},
    ]


def test_a_kept_measurement_does_not_name_the_folder_of_its_text(make_run, tmp_path):
    run = RunFolder(make_run(tmp_path / "there", 1, 131.7, 66, name="penn_study"))
    measured = {"measured_on": {"name": "/home/me/data", "sha256": "0", "is_own": True}, "kl": 0.5}
    about = {"schema_version": 1, "kind": "truncation"}
    write_analysis(run, "truncation_test_10", about | measured)
    copy_finished(tmp_path / "there", tmp_path / "kept")
    (copy,) = tmp_path.glob("kept/*/analysis/truncation_test_10.json")
    content = read_json(copy, 1, "")
    assert content["measured_on"]["name"] == "data"
    assert content["kl"] == 0.5
    write_analysis(run, "truncation_test_10", about | measured | {"kl": 0.25})
    copy_measured(run.path, copy.parents[1])
    assert read_json(copy, 1, "")["kl"] == 0.25  # measured again


def test_runs_trained_anew_are_compared_with_those_kept(make_run, tmp_path, capsys):
    for folder, ppl in (("kept", 131.7), ("same", 131.7), ("other", 131.8)):
        run = make_run(tmp_path / folder, 1, ppl, 66, name="penn_study")
    compare([tmp_path / "kept"], tmp_path / "same")
    assert capsys.readouterr().out == f"{run.name}: the same digits\n"
    with pytest.raises(SystemExit) as left:
        compare([tmp_path / "kept"], tmp_path / "other")
    assert left.value.code == 1
    assert capsys.readouterr().out == f"{run.name}: other test_ppl, train_ppl, valid_ppl\n"
    same = tmp_path / "same" / run.name  # trained by a version that takes one measure less
    change(same, "result.json", lambda c: c["metrics"]["test_spectrum"].pop("stable_rank"))
    compare([tmp_path / "kept"], tmp_path / "same")
    assert capsys.readouterr().out == f"{run.name}: the same digits\n"
    spectrum = final_spectrum(RunFolder(tmp_path / "same" / run.name))
    write_spectrum(spectrum, np.geomspace(100.0, 1e-6, 400), read_spectrum(spectrum).measures)
    with pytest.raises(SystemExit):
        compare([tmp_path / "kept"], tmp_path / "same")
    assert capsys.readouterr().out == f"{run.name}: other {spectrum.name}\n"
    with pytest.raises(SystemExit, match="no finished run"):
        compare([tmp_path / "kept"], tmp_path / "nowhere")
