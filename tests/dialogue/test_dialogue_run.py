"""A dialogue run from its command to its table: result, responses."""

import json
import random
from importlib.metadata import version
from pathlib import Path

import pytest

from lmkit.experiment.run import run
from lmkit.runs.checksums import parse_json
from lmkit.runs.folder import RunFolder
from tests.dialogue.conftest import SMALL
from tests.tiny import composed

pytestmark = pytest.mark.slow

WORDS = list("abcdefgh.?")


def config(folder: Path, runs_dir: Path, *further: str) -> dict:
    options = [*SMALL, f"data.root={folder}", f"runs_dir={runs_dir}", "trainer.log_every_n_steps=5"]
    options += ["windows.batch_size=8", "windows.eval_batch_size=16", "optimizer.lr=0.01"]
    options += ["switch_epoch=3", "max_epochs=5", "callbacks.spectrum.contexts=50"]
    return composed(*options, "experiment=dialogue_mos", *further)


@pytest.fixture(scope="module")
def dialogues(tmp_path_factory) -> Path:
    """Speakers who mostly say again what was said."""
    folder, draw = tmp_path_factory.mktemp("talk"), random.Random(0)
    for split, number in (("train", 60), ("valid", 6), ("test", 6)):
        lines = []
        for dialogue in range(number):
            said = draw.choices(WORDS, k=draw.randint(1, 6))
            for turn in range(5):
                lines.append(f"{dialogue}\t{'AB'[turn % 2]}\t{' '.join(said)}\n")
                said = said if draw.random() < 0.8 else draw.choices(WORDS, k=3)
        (folder / f"{split}.tsv").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module")
def finished(dialogues, tmp_path_factory) -> RunFolder:
    """An undisturbed run of MoS."""
    return run(config(dialogues, tmp_path_factory.mktemp("runs")))


def test_it_learns_and_has_a_result_like_any_run(finished):
    result = finished.read_result()
    assert result.experiment == "dialogue_mos"
    assert 1 < result.metrics["test_ppl"] < 9  # of 12 words
    spectrum = result.metrics["test_spectrum"]
    assert spectrum["num_contexts"] == result.metrics["test_tokens"]
    assert result.metrics["switched_after"] == 3


def test_responses_are_scored_written_and_shown(finished, lmkit):
    file, ppl = finished.analysis / "dialogue.json", finished.read_result().metrics["test_ppl"]
    options = ("beam=4", "n_best=2", "max_words=7", "samples=5", "shown=2")
    line = (f"run={finished.path.parent}", *options)
    printed = lmkit("dialogue", *line)
    found = parse_json(file.read_bytes())
    assert found["perplexity"] == pytest.approx(ppl, rel=1e-6)
    assert found["answered_pairs"] == found["all_pairs"] == 24
    for n in range(1, 5):
        precision, recall = found[f"bleu{n}_precision"], found[f"bleu{n}_recall"]
        assert 0 <= precision <= recall <= 1
    assert len(found["responses"]) == 5
    for answered in found["responses"]:
        assert 1 <= len(answered["responses"]) <= 2
    assert "BLEU-4 precision" in printed
    assert " ".join(found["responses"][0]["reference"]) in printed
    assert (found["smoothing"], found["nltk"]) == ("exp", None)
    lmkit("dialogue", *line, "smoothing=program")
    scored = json.loads(file.read_text())
    assert (scored["smoothing"], scored["nltk"]) == ("program", version("nltk"))
    assert scored["responses"] == found["responses"]
    assert scored["bleu3_precision"] != found["bleu3_precision"]
    lmkit("dialogue", *line, "pairs=3")
    assert json.loads(file.read_text())["answered_pairs"] == 3


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["beam=2"], "n_best must be at most beam, which is 2, but is 5"),
        (["split=dev"], "split must be one of train, valid, test"),
        (["max_words=0"], "max_words must be a whole number of at least 1, but is 0"),
        (["pairs=0"], 'pairs must be a whole number of at least 1 or "all", but is 0'),
        (["pairs=25"], "pairs=25 is more than the 24 pairs of the test split"),
    ],
)
def test_bad_options_are_named(finished, refused, arguments, expected):
    assert expected in refused("dialogue", f"run={finished.path}", "max_words=2", *arguments)


def test_words_that_no_context_makes_the_likeliest_are_counted(finished, lmkit):
    lmkit("unargmaxable", f"run={finished.path}", "contexts=20")
    found = parse_json((finished.analysis / "unargmaxable.json").read_bytes())
    assert found["num_words"] == len(WORDS) + 2  # <eos> and <unk>


def test_it_is_no_language_model_of_running_text(finished, refused):
    error = refused("samples", f"run={finished.path}")
    assert "it is not a language model of running text" in error
