"""Which source files decide a run's numbers."""

import re
import shutil
from pathlib import Path

import pytest

import lmkit
from lmkit.runs.code import deciding_files

PACKAGE = Path(lmkit.__file__).parent


@pytest.fixture
def package(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("conf", "__pycache__")
    return Path(shutil.copytree(PACKAGE, tmp_path / "lmkit", ignore=ignored))


def test_what_trains_evaluates_and_measures_a_run_decides_its_numbers():
    files = deciding_files(PACKAGE)
    for path in (
        *("trunk/awd_lstm.py", "heads/head.py", "data/corpus.py", "training/optimizer.py"),
        *("experiment/run.py", "experiment/conclusion.py", "training/callbacks/asgd_switch.py"),
        *("measures/perplexity.py", "measures/model_spectra.py", "spectra/measures.py"),
        *("fixed_trunk/corpus.py", "fixed_trunk/composition.py", "pretrained/loading.py"),
    ):
        assert path in files, path
    rooms = {path.split("/")[0] for path in files}
    assert not rooms & {"analyses", "evaluation", "report", "results", "presentation", "cli"}


def test_what_decides_takes_nothing_from_elsewhere_that_could():
    imported = {
        room
        for content in deciding_files(PACKAGE).values()
        for room in re.findall(r"^\s*from lmkit\.(\w+)", content.decode(), re.MULTILINE)
    }
    rooms = {path.split("/")[0] for path in deciding_files(PACKAGE)}
    # none of these computes a run: they name, store and draw; dialogue has an analysis
    assert imported - rooms <= {"errors", "runs", "presentation", "analyses"}


def test_a_measure_decides_numbers_once_a_run_takes_it(package):
    before = deciding_files(package)
    for room in ("analyses", "evaluation", "measures"):
        (package / room / "mine.py").write_text("MINE = 1\n")
    assert deciding_files(package) == before
    taken = package / "measures" / "perplexity.py"  # which a run takes
    taken.write_text(f"{taken.read_text()}\n\n    from lmkit.measures.mine import MINE\n")
    files = deciding_files(package)
    assert files.keys() - before.keys() == {"measures/mine.py"}
    assert files["measures/perplexity.py"] != before["measures/perplexity.py"]
