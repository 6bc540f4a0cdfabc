"""Predictions, logits, embeddings and texts of finished runs, against plain computations.

Shapes: T tokens read, K components, V vocabulary.
"""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import stats

from lmkit.analyses.logits import Logits
from lmkit.analyses.measuring import measure_runs
from lmkit.analyses.prediction_study import PredictionOptions, Predictor
from lmkit.analyses.word_similarity import BENCHMARKS
from lmkit.cli.embeddings import measure as measure_embeddings
from lmkit.errors.user_error import UserError
from lmkit.evaluation.each_run import each_run
from lmkit.evaluation.generate import generate
from lmkit.evaluation.load import load_run
from lmkit.evaluation.next_words import (
    known_words,
    next_words,
    next_words_after,
    target_log_probs,
)

OPTIONS = PredictionOptions("test", True, [90], [], 3, 40, 4, 1, None, None)


@pytest.fixture(scope="module")
def mos(trained_runs):
    (path,) = (path for path in trained_runs.glob("mos-*") if path.is_dir())
    return load_run(path, "best", None, None)


def plain_log_probs(run, tokens) -> torch.Tensor:
    """Rows (T, V) after each token of a text, read at once from a zero state."""
    model = run.model.eval()
    with torch.no_grad():
        inputs_TB = torch.as_tensor(tokens).unsqueeze(1)
        output = model.trunk(inputs_TB, model.trunk.initial_state(1))
        return model.head.log_probs(output.dropped_TBD)


def test_next_words_are_those_of_the_whole_text_read_at_once(mos):
    tokens = mos.data.corpus.test
    rows = plain_log_probs(mos, tokens[:-1]).exp()
    positions = [599, 1, 70, 71, 140, 141, 300]  # windows of 70 end and begin among them
    read = []
    found = next_words(mos.model, tokens, positions, 70, read.append)
    assert sorted(found) == sorted(positions)
    assert sum(read) == 599
    for position, words in found.items():
        row = rows[position - 1]
        target = row[tokens[position]]
        assert words.target_prob == pytest.approx(float(target), rel=1e-4)
        assert words.target_rank == int((row > target).sum()) + 1
        probs, indices = row.sort(descending=True)
        assert [prob for _, prob in words.top] == pytest.approx(probs[:5].tolist(), rel=1e-4)
        assert words.top[0][0] == int(indices[0])


def test_words_after_a_text_alone(mos):
    found = next_words_after(mos.model, [3, 1, 4], 2)
    row = plain_log_probs(mos, [3, 1, 4])[-1].exp()
    assert found.top[0][1] == pytest.approx(float(row.max()), rel=1e-4)
    assert (found.target_prob, found.target_rank) == (None, None)


def test_log_probs_of_all_words(mos):
    tokens = mos.data.corpus.test
    found = target_log_probs(mos.model, tokens, 70, lambda count: None)
    rows = plain_log_probs(mos, tokens[:-1])
    plain = rows[torch.arange(599), torch.as_tensor(tokens[1:])]
    np.testing.assert_allclose(found, plain, atol=1e-4)


def test_predictions_of_a_folder_against_one_of_its_runs(tiny_runs, tiny_run):
    loaded = load_run(tiny_run, "best", None, None)
    vocabulary, tokens = loaded.data.corpus.vocabulary, loaded.data.corpus.test
    text = " ".join(vocabulary[word] for word in tokens[200:205])
    options = OPTIONS._replace(texts=[text, f"{vocabulary[0]} " * 9])
    predictor = Predictor(options, str(tiny_run))
    found = each_run(str(tiny_runs), None, None, predictor.predict)
    assert len(found) == 2
    for name, content in found.items():
        stored = json.loads((tiny_runs / name / "analysis" / "predictions.json").read_text())
        assert stored == {"schema_version": 1, "kind": "predictions", "checkpoint": "best",
                          "averaged": True, **content}
        sources = [context["source"] for context in content["contexts"]]
        assert sources == ["position", "text", "text", "random", "random", "random"]
        assert [c["position"] for c in content["contexts"][:3]] == [90, 205, None]
        assert content["contexts"][1]["context"].endswith(text)
        assert len(content["hits"]["top1"]) == len(content["hits"]["top5"]) == 40
        assert all(a <= b for a, b in zip(*list(content["hits"].values())[1:], strict=True))
    assert "against" not in found[tiny_run.name]
    (other,) = (content for name, content in found.items() if name != tiny_run.name)
    (folder,) = (name for name in found if name != tiny_run.name)
    ours = target_log_probs(
        load_run(tiny_runs / folder, "best", None, None).model, tokens, 70, lambda count: None
    )
    margins = ours - target_log_probs(loaded.model, tokens, 70, lambda count: None)
    better, worse = other["against"]["better"], other["against"]["worse"]
    assert better[0]["margin_nats"] == pytest.approx(margins.max(), abs=1e-4)
    assert worse[0]["margin_nats"] == pytest.approx(margins.min(), abs=1e-4)
    assert better[0]["position"] == margins.argmax() + 1
    assert len(better) == len(worse) == 4


def test_what_cannot_be_predicted_is_named(tiny_run):
    loaded = load_run(tiny_run, "best", None, None)
    with pytest.raises(UserError, match="hits=600 is more than the 599"):
        Predictor(OPTIONS._replace(hits=600), None).predict(loaded)
    with pytest.raises(UserError, match="against=nowhere"):
        Predictor(OPTIONS, "nowhere")
    with pytest.raises(UserError, match="prompt: 'nonsense' is not in"):
        known_words("prompt", "nonsense", loaded.data.corpus.vocabulary)


def test_histogram_of_all_logits_and_curve_of_the_transform(tiny_run):
    run = load_run(tiny_run, "best", None, None)
    analysis = Logits(split="test", contexts=150, bins=20)
    (found,) = measure_runs(analysis, [run.folder]).found.values()
    stored = json.loads((tiny_run / "analysis" / "logits.json").read_text())
    assert (stored["kind"], stored["transform"]) == ("logits", "PiecewiseLinear")
    assert found["num_contexts"] == 150
    model, tokens = run.model.eval(), torch.as_tensor(run.data.corpus.test[:150]).unsqueeze(1)
    with torch.no_grad():
        output = model.trunk(tokens, model.trunk.initial_state(1))
        context_NKE = model.head.mixture(output.dropped_TBD).context_NKE
        logits = context_NKE @ model.head.decoder_weight.T + model.head.decoder_bias
        curve = torch.tensor(found["curve"]["logit"])
        transformed = model.head.transform(curve)
    assert logits.shape[1] == 3
    edges = np.array(found["histogram"]["edges"])
    assert (edges[0], edges[-1]) == pytest.approx(
        (float(logits.min()), float(logits.max())), abs=1e-4
    )
    plain, _ = np.histogram(logits.double().numpy(), edges, density=True)
    np.testing.assert_allclose(found["histogram"]["density"], plain, rtol=0.01, atol=1e-3)
    torch.testing.assert_close(torch.tensor(found["curve"]["transformed"]), transformed)


def test_embeddings_of_runs(tiny_run, tmp_path):
    run = load_run(tiny_run, "best", None, None)
    words = run.data.corpus.vocabulary
    for file in BENCHMARKS.values():
        lines = [f"{words[i]}\t{words[i + 1]}\t{i}" for i in range(1, 9)]
        (tmp_path / file).write_text("\n".join([*lines, "absent word 1"]))
    assert all(word == word.lower() for word in words)
    found = measure_embeddings(run, tmp_path)
    vectors = run.model.trunk.embedding_weight.detach()
    cosines = torch.cosine_similarity(vectors[1:9], vectors[2:10])
    rho = stats.spearmanr(range(1, 9), cosines).statistic
    assert found["word_similarity"]["MEN"] == {
        "spearman": pytest.approx(rho), "pairs": 9, "skipped": 1
    }
    assert found["emb_dim"] == 8
    without = measure_embeddings(run, None)  # the toy language lies in no folder
    assert without["word_similarity"] == {}
    stored = json.loads((tiny_run / "analysis" / "embeddings.json").read_text())
    assert stored["principal_components"] == without["principal_components"]


def texts(run, num_texts=2, length=8, temperature=1.0, top_k=None, seed=1) -> list[list[int]]:
    drawn = [run.model, [0, 5], num_texts, length, temperature, top_k, seed]
    return generate(*drawn, lambda: None)


def test_texts_are_those_of_the_seed(mos):
    assert texts(mos) == texts(mos)
    assert texts(mos) != texts(mos, seed=2)
    assert texts(mos)[0] != texts(mos)[1]


def test_one_likeliest_word_is_the_greedy_text(mos):
    text = [0, 5]
    for _ in range(8):
        text.append(int(plain_log_probs(mos, text)[-1].argmax()))
    assert texts(mos, top_k=1) == [text[2:]] * 2


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, None), (0.5, None), (2.0, 10)])
def test_words_are_drawn_by_their_probability(mos, temperature, top_k):
    drawn = [word for (word,) in texts(mos, 4000, 1, temperature, top_k)]
    scores = plain_log_probs(mos, [0, 5])[-1].double() / temperature
    if top_k is not None:
        scores[scores < scores.topk(top_k).values[-1]] = -torch.inf
    expected = scores.softmax(0).numpy() * 4000
    counts = np.bincount(drawn, minlength=len(expected))
    assert counts[expected == 0].sum() == 0
    rare = expected < 5
    pooled = [np.append(x[~rare], x[rare].sum()) for x in (counts, expected)]
    pooled = [x[pooled[1] > 0] for x in pooled]
    assert stats.chisquare(*pooled).pvalue > 1e-4


def test_a_folder_with_an_unfinished_run_names_it(tiny_runs, tiny_run, capsys):
    (tiny_run / "result.json").unlink()
    assert len(each_run(str(tiny_runs), None, None, lambda run: 1)) == 1
    assert f"left out: {tiny_run.name}: it has not finished" in capsys.readouterr().out
    (damaged,) = (path for path in tiny_runs.glob("toy-*") if path.is_dir())
    (damaged / "checkpoints" / "best.ckpt").write_bytes(b"")
    with pytest.raises(UserError, match="could be measured"):
        each_run(str(tiny_runs), None, None, lambda run: 1)


def test_the_generate_command_prints_and_writes(tiny_run):
    line = [sys.executable, "-m", "lmkit", "generate", f"run={tiny_run}", "length=12", "texts=1"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    stored = json.loads((tiny_run / "analysis" / "samples.json").read_text())
    (text,) = stored["texts"]
    assert (stored["kind"], stored["seed"], stored["top_k"]) == ("samples", 1, None)
    assert text.splitlines()[-1] in done.stdout
    wrong = subprocess.run([*line, "temperature=0"], capture_output=True, text=True)
    assert wrong.stderr == "error: temperature must be greater than 0, but is 0\n"
