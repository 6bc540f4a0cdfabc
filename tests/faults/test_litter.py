"""Commands that are no runs leave nothing of a killed process behind."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import KEPT, REPOSITORY
from tests.faults import interposer
from tests.pretrained_models import TEXT, make_gpt2, make_tokenizer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not interposer.has_compiler(), reason="there is no gcc"),
]


def dies_and_repeats(folder: Path, *line: str) -> str:
    """What `tests.faults.litter` says of the command, typed beside `folder`/inputs."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.faults.litter", str(folder), *line]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    return (ended.stdout[-200:] + ended.stderr).rstrip()


def test_a_report_leaves_no_litter(tmp_path):
    for run in sorted(KEPT.iterdir())[:2]:
        shutil.copytree(run, tmp_path / "inputs" / "runs" / run.name)
    assert dies_and_repeats(tmp_path, "report", "runs=runs").endswith("0 problems")


def test_a_study_leaves_no_litter(tmp_path):
    (tmp_path / "inputs").mkdir()
    line = ("study", "gss_pieces", "points=21", "threads=1")
    assert dies_and_repeats(tmp_path, *line).endswith("0 problems")


def test_what_measures_a_pretrained_model_leaves_no_litter(tmp_path):
    pytest.importorskip("transformers")
    folder, text = tmp_path / "inputs" / "gpt2", TEXT
    make_gpt2(num_words=400).save_pretrained(folder)
    make_tokenizer(text, begins=False).save_pretrained(folder)
    (folder.parent / "text.txt").write_text(text, "utf-8")
    line = ("rank", "hf=gpt2", "text=text.txt", "window=24", "stride=10", "contexts=60")
    assert dies_and_repeats(tmp_path, *line).endswith("0 problems")
