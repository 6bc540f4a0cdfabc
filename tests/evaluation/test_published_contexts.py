"""A run ends with the ranks of the published contexts, or says how to have them later."""

import shlex
from pathlib import Path

import pytest

from lmkit.experiment import conclusion
from lmkit.results.published import CORPORA
from lmkit.runs.folder import RunFolder
from tests.tiny import TINY, composed, trained

MIXTURE = (*TINY, "max_epochs=1", "head/mixture=softmaxes", "head.mixture.num_experts=2")


def finished(runs_dir: Path, *overrides: str) -> RunFolder:
    return trained(runs_dir, *MIXTURE, *overrides)


def contexts_of(folder: RunFolder) -> int:
    return folder.read_result().metrics["test_spectrum"]["num_contexts"]


def test_the_published_contexts_are_taken_where_the_memory_is_free(tmp_path, capsys):
    folder = finished(tmp_path, "conclusion.published_contexts=200")
    assert contexts_of(folder) == 200
    assert "lmkit rank" not in capsys.readouterr().out


def test_else_a_line_says_how_to_have_them_later_and_it_does(tmp_path, monkeypatch, capsys, lmkit):
    with monkeypatch.context() as patched:
        patched.setattr(conclusion, "available_bytes", lambda device: 10**8)
        folder = finished(tmp_path, "conclusion.published_contexts=200")
    assert contexts_of(folder) == 60
    (line,) = [each for each in capsys.readouterr().out.splitlines() if "Later: " in each]
    assert "need 0.5 GB of memory, but 0.1 GB are free" in line
    command, *arguments = shlex.split(line.partition("Later: ")[2])
    assert command == "lmkit"
    lmkit(*arguments)
    assert (folder.analysis / "rank_test_log_probs_200.json").is_file()


@pytest.mark.parametrize(
    ("contexts", "published", "available", "taken"),
    [(60, 5000, 300, 60), (60, None, 300, 60), (None, 200, 300, 300), (500, None, 300, 300)],
)
def test_a_split_without_them_is_measured_as_it_is_asked_for(contexts, published, available, taken):
    made = conclusion.Conclusion(contexts=contexts, sample=10, published_contexts=published)
    assert made._contexts(None, None, available) == taken


@pytest.mark.parametrize("name", ["penn_softmax", "penn_mos_nt", "wt2_softmax", "wt2_awd_lstm"])
def test_experiments_on_a_published_corpus_take_its_published_contexts(name):
    corpus = CORPORA[name.partition("_")[0]]
    config = composed(f"experiment={name}")
    assert config["conclusion"]["published_contexts"] == corpus.rank_contexts


def test_other_runs_take_none():
    assert composed()["conclusion"]["published_contexts"] is None
