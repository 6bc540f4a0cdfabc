"""Files of analyses, as they are written, listed and read."""

from pathlib import Path

import pytest

from lmkit.errors.user_error import UserError
from lmkit.runs.analysis_files import analysis_file, analysis_stems, read_analysis, write_analysis
from lmkit.runs.folder import RunFolder


@pytest.fixture
def run(tmp_path) -> RunFolder:
    return RunFolder(tmp_path)


def write(run: RunFolder, stem: str, kind: str, **content: object) -> Path:
    write_analysis(run, stem, {"schema_version": 3, "kind": kind, **content})
    return run.path / "analysis" / f"{stem}.json"


def test_what_is_written_is_read(run):
    write(run, "rank_test_300", "rank", press_rank=7)
    assert (run.path / "analysis" / "rank_test_300.json").exists()
    assert read_analysis(run, "rank_test_300", kind="rank", schema_version=3) == {
        "schema_version": 3,
        "kind": "rank",
        "press_rank": 7,
    }
    assert read_analysis(run, "rank", kind="rank", schema_version=3) is None


def test_files_are_listed_by_kind(run):
    assert analysis_stems(run, "rank") == []
    for stem in ("rank_valid_2", "rank", "ranking", "samples"):
        write(run, stem, stem.partition("_")[0])
    assert analysis_stems(run, "rank") == ["rank", "rank_valid_2"]
    write(run, "rank_mine", "rank_mine")  # of another analysis, whose name begins alike
    for version in (3, 4):
        assert read_analysis(run, "rank_mine", kind="rank", schema_version=version) is None


def test_a_run_that_was_removed_stays_so(tmp_path):
    gone = RunFolder(tmp_path / "gone")

    def check() -> None:
        raise UserError("trained further")

    with pytest.raises(UserError, match="trained further"):
        write_analysis(gone, "rank", {"kind": "rank"}, check)
    assert not gone.path.exists()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", "is damaged: Expecting"),
        ("[]", "is not a mapping"),
        ('{"kind": "rank"}', "is damaged: its schema_version is missing"),
    ],
)
def test_a_damaged_file_is_named(run, text, error):
    write(run, "rank", "rank").write_text(text)
    with pytest.raises(UserError, match=rf"rank\.json .*{error}"):
        read_analysis(run, "rank", kind="rank", schema_version=3)


def test_arrays_are_there_before_the_record(run):
    there, path = [], analysis_file(run, "mine")
    write_analysis(run, "mine", {"a": 1}, first=lambda: there.append(path.exists()))
    assert there == [False]
