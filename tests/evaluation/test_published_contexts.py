"""A run ends with the ranks of the published contexts, or says how to have them later."""

import shlex
from types import SimpleNamespace

import pytest

from lmkit.experiment import conclusion
from lmkit.experiment.load import load_run
from tests.tiny import TINY, composed, trained

MIXTURE = (*TINY, "max_epochs=1", "head/mixture=softmaxes", "head.mixture.num_experts=2")


def test_where_memory_is_short_a_line_says_how_to_have_them_later_and_it_does(
    tmp_path, monkeypatch, capsys, lmkit
):
    with monkeypatch.context() as patched:
        patched.setattr(conclusion, "available_bytes", lambda device: 10**8)
        folder = trained(tmp_path, *MIXTURE, "conclusion.published_contexts=200")
    assert folder.read_result().metrics["test_spectrum"]["num_contexts"] == 60
    (line,) = [each for each in capsys.readouterr().out.splitlines() if "Later: " in each]
    assert "need 0.5 GB of memory, but 0.1 GB are free" in line
    command, *arguments = shlex.split(line.partition("Later: ")[2])
    assert command == "lmkit"
    lmkit(*arguments)
    assert (folder.analysis / "rank_test_log_probs_200.json").is_file()
    made = conclusion.Conclusion(contexts=60, sample=10, published_contexts=200)
    run = SimpleNamespace(model=load_run(folder.path, "best", None, None).model, run=folder)
    assert made._contexts(run, 299) == made._contexts(run, 200) == 200  # the memory is free
    assert "Later: " not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("contexts", "published", "available", "taken"),
    [(60, 5000, 300, 60), (60, None, 300, 60), (None, 200, 300, 300), (500, None, 300, 300)],
)
def test_a_split_without_them_is_measured_as_it_is_asked_for(contexts, published, available, taken):
    made = conclusion.Conclusion(contexts=contexts, sample=10, published_contexts=published)
    assert made._contexts(SimpleNamespace(model=None, run=None), available) == taken


def test_other_runs_take_none():
    assert composed()["conclusion"]["published_contexts"] is None
