"""A run folder from new to finished and, under a larger budget, on."""

from pathlib import Path

import pytest

from lmkit.errors.user_error import UserError
from lmkit.runs import atomic
from lmkit.runs import folder as folder_module
from lmkit.runs.folder import RunFolder
from lmkit.runs.identity import RunIdentity
from lmkit.runs.names import RunNames
from lmkit.runs.result import SCHEMA_VERSION, Budget, Result, Spent, publish_result

IDENTITY = RunIdentity({"identity_version": 1, "seed": 1, "head": {"k": 0.5}}, "0123456789ab")
NAMES = RunNames("Softmax", "softmax", (0, 0, 0), "AWD-LSTM", "ET 200", "Penn Treebank", "PTB")


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.of(tmp_path, "smoke", IDENTITY)


def finish(run: RunFolder, epochs: int) -> None:
    spent = Spent(max_epochs=epochs, patience=None, epochs=epochs, stopped="max_epochs")
    metrics = {"test_perplexity": 100.0 / epochs}
    result = Result(SCHEMA_VERSION, "smoke", IDENTITY.digest, metrics, {}, {}, spent)
    publish_result(run.result, result)


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a b", "-rf", "x" * 200, "a\n"])
def test_name_that_is_no_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="experiment's name"):
        RunFolder.of(tmp_path, name, IDENTITY)


def test_from_new_to_finished(tmp_path: Path) -> None:
    run = RunFolder.of(tmp_path / "deep" / "runs", "gss_k=0.5", IDENTITY)
    assert run.path == tmp_path / "deep" / "runs" / "gss_k=0.5-0123456789ab"
    assert run.lock == run.path.with_name("gss_k=0.5-0123456789ab.lock")
    assert run.state() == "new"
    assert not list(tmp_path.iterdir())
    assert not run.finished_within(Budget(1, None))
    run.prepare("seed: 1\n", IDENTITY, NAMES)
    assert run.state() == "unfinished"
    assert run.read_config() == {"seed": 1}
    assert run.read_identity().settings == IDENTITY.settings
    assert run.checkpoints.is_dir()
    assert run.spectra.is_dir()
    assert run.analysis.is_dir()
    assert not run.finished_within(Budget(1, None))
    finish(run, epochs=3)
    assert run.state() == "finished"
    assert run.read_result().metrics == {"test_perplexity": 100.0 / 3}
    assert run.finished_within(Budget(3, None))
    assert not run.finished_within(Budget(4, None))


def test_made_but_not_prepared_is_new(run: RunFolder) -> None:
    """As after a kill in the middle of `prepare`."""
    run.checkpoints.mkdir(parents=True)
    (run.path / ".identity.json.0123.tmp").write_text("{")
    assert run.state() == "new"
    run.prepare("seed: 1\n", IDENTITY, NAMES)
    assert run.state() == "unfinished"
    assert not list(run.path.rglob(".*"))


def test_preparing_again_keeps_the_work_and_takes_the_new_config(run: RunFolder) -> None:
    run.prepare("max_epochs: 3\n", IDENTITY, NAMES)
    run.last.write_bytes(b"weights")
    (run.checkpoints / ".last.ckpt.0123.tmp").write_bytes(b"half")
    (run.path / "my.tmp").touch()
    run.metrics.write_text("step,epoch\n")
    run.prepare("max_epochs: 4\n", IDENTITY, NAMES)
    assert run.read_config() == {"max_epochs": 4}
    assert run.last.read_bytes() == b"weights"
    assert run.metrics.read_text() == "step,epoch\n"
    assert [path.name for path in run.checkpoints.iterdir()] == ["last.ckpt"]
    assert (run.path / "my.tmp").exists()


def test_same_config_is_not_written_again(run: RunFolder) -> None:
    run.prepare("name: é\n", IDENTITY, NAMES)
    before = run.config.stat()
    run.prepare("name: é\n", IDENTITY, NAMES)
    assert run.config.stat().st_ino == before.st_ino


def test_folder_of_another_identity_is_refused(run: RunFolder) -> None:
    run.prepare("k: 0.5\n", IDENTITY, NAMES)
    other = RunIdentity({**IDENTITY.settings, "head": {"k": 0.7}}, IDENTITY.digest)
    with pytest.raises(UserError, match="another run"):
        run.prepare("k: 0.7\n", other, NAMES)
    assert run.read_config() == {"k": 0.5}


def test_an_option_gained_since_with_its_default_makes_no_other_run(run: RunFolder) -> None:
    head = {"_target_": "lmkit.heads.head.Head"}
    before = RunIdentity({**IDENTITY.settings, "head": head}, IDENTITY.digest)
    run.prepare("k: 0.5\n", before, NAMES)
    gained = RunIdentity({**before.settings, "head": head | {"decoder_rank": None}}, before.digest)
    run.prepare("k: 0.5\n", gained, NAMES)
    set_by_the_user = {**before.settings, "head": head | {"decoder_rank": 3}}
    with pytest.raises(UserError, match="another run"):
        run.prepare("k: 0.5\n", RunIdentity(set_by_the_user, before.digest), NAMES)


def test_damaged_result_is_named(run: RunFolder) -> None:
    run.prepare("k: 0.5\n", IDENTITY, NAMES)
    run.result.write_text('{"schema_version": 1, "metr')
    assert run.state() == "finished"  # it is not trained over: someone may still save it
    with pytest.raises(UserError, match=str(run.result)):
        run.finished_within(Budget(1, None))


def test_a_run_that_is_reopened_meanwhile_has_not_finished(run, monkeypatch):
    run.prepare("k: 0.5\n", IDENTITY, NAMES)
    finish(run, epochs=3)
    real = RunFolder.read_result

    def read_late(folder: RunFolder) -> Result:
        folder.result.unlink()
        return real(folder)

    monkeypatch.setattr(RunFolder, "read_result", read_late)
    assert not run.finished_within(Budget(3, None))


def test_what_was_measured_until_the_result_goes_goes_with_it(run, monkeypatch):
    run.prepare("k: 0.5\n", IDENTITY, NAMES)
    finish(run, epochs=3)
    real = folder_module.set_aside

    def late(path: Path, target: Path, check: object) -> None:
        if path == run.result:
            (run.analysis / "rank.json").write_text("measured")
        real(path, target, check)

    monkeypatch.setattr(folder_module, "set_aside", late)
    run.reopen()
    assert [path.name for path in run.path.glob("analysis*/*")] == ["rank.json"]
    assert not list(run.analysis.iterdir())


def test_reopened_under_a_larger_budget(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    run.prepare("max_epochs: 3\n", IDENTITY, NAMES)
    finish(run, epochs=3)
    run.last.write_bytes(b"weights")
    (run.analysis / "rank_test_log_probs_200.json").write_text("of the weights after epoch 3")
    synced: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(atomic, "sync_folder", lambda folder: synced.append(folder.name))
        run.reopen()
    # what was measured is aside on the disk before the result goes
    assert synced == ["analysis-epoch3", "analysis", run.path.name, run.path.name]
    assert run.state() == "unfinished"
    assert not list(run.analysis.iterdir())
    assert [path.name for path in run.path.glob("analysis-epoch3/*")] == [
        "rank_test_log_probs_200.json"
    ]
    assert RunFolder(run.path).last.read_bytes() == b"weights"
    finish(run, epochs=5)
    assert run.finished_within(Budget(5, None))
    assert sorted(path.name for path in run.path.glob("result*")) == [
        "result-epoch3.json",
        "result.json",
    ]
