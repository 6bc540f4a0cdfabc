"""Predictions, logits, embeddings and texts of finished runs, against plain computations.

Shapes: T tokens read, K components, V vocabulary.
"""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from lmkit.analyses.base import Recorded, Subject
from lmkit.analyses.embeddings import BENCHMARKS
from lmkit.analyses.logits import Logits, mean_slope
from lmkit.analyses.measuring import measure_runs
from lmkit.analyses.nearest_softmax import NearestSoftmaxDistance
from lmkit.analyses.predictions import random_positions
from lmkit.cli.analysis import record_rows
from lmkit.data.toy import ToyLanguage
from lmkit.evaluation import split_reader
from lmkit.evaluation.generate import generate
from lmkit.evaluation.split_reader import SplitReader
from lmkit.experiment import load
from lmkit.experiment.load import load_run
from lmkit.experiment.make import make
from lmkit.runs.checksums import parse_json
from lmkit.runs.folder import RunFolder
from lmkit.runs.selection import select_run
from tests.tiny import run_of


def written(run: Path, name: str) -> dict:
    return parse_json((run / "analysis" / f"{name}.json").read_bytes())


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
    found = SplitReader(mos, "test", 5).next_words(positions)
    assert sorted(found) == sorted(positions)
    for position, words in found.items():
        row = rows[position - 1]
        target = row[tokens[position]]
        assert words.target_prob == pytest.approx(float(target), rel=1e-4)
        assert words.target_rank == int((row > target).sum()) + 1
        probs, indices = row.sort(descending=True)
        assert [prob for _, prob in words.top] == pytest.approx(probs[:5].tolist(), rel=1e-4)
        assert words.top[0][0] == int(indices[0])


def test_words_after_a_text_alone(mos):
    found = SplitReader(mos, "test", 3).next_words_after([3, 1, 4])
    row = plain_log_probs(mos, [3, 1, 4])[-1].exp()
    assert [prob for _, prob in found.top] == pytest.approx(row.topk(3).values.tolist(), rel=1e-4)
    assert (found.target_prob, found.target_rank) == (None, None)


def test_log_probs_of_all_words(mos):
    tokens = mos.data.corpus.test
    found = SplitReader(mos, "test", 5).log_probs
    rows = plain_log_probs(mos, tokens[:-1])
    plain = rows[torch.arange(599), torch.as_tensor(tokens[1:])]
    np.testing.assert_allclose(found, plain, atol=1e-4)


def test_contexts_that_are_not_shown_are_counted(lmkit, tiny_run):
    printed = lmkit("predictions", f"run={tiny_run}", "random=50", "hits=1")
    left = len(written(tiny_run, "predictions")["contexts"]) - 40
    assert f"and {left} more, in the file" in printed


PREDICTIONS = ("positions=[90]", "random=3", "hits=40", "margins=4")


def test_predictions_of_a_folder_compared_with_one_of_its_runs(lmkit, tiny_runs, tiny_run):
    loaded = load_run(tiny_run, "best", None, None)
    vocabulary, tokens = loaded.data.corpus.vocabulary, loaded.data.corpus.test
    text = " ".join(vocabulary[word] for word in tokens[200:205])
    texts = f"texts=['{text}','{vocabulary[1]} {vocabulary[1]} {vocabulary[1]} {vocabulary[1]}']"
    line = [f"run={tiny_runs}", *PREDICTIONS, texts, f"compared_with={tiny_run}"]
    printed = lmkit("predictions", *line)
    other = run_of(tiny_runs, "toy").path
    for run in (other, tiny_run):
        content = written(run, "predictions")
        sources = [context["source"] for context in content["contexts"]]
        assert sources == ["position", "text", "text", "random", "random", "random"]
        assert [c["position"] for c in content["contexts"][:3]] == [90, 205, None]
        assert content["contexts"][1]["context"].endswith(text)
        ranks = content["hit_ranks"]
        assert len(ranks) == 40
        assert content["top1"] == ranks.count(1) / 40 <= content["top5"]
        assert f"of 40 words at random {content['top1']:.1%} are first" in printed
    assert written(tiny_run, "predictions")["compared_with"] is None
    compared = written(other, "predictions")
    ours, theirs = (
        SplitReader(load_run(run, "best", None, None), "test", 5).log_probs
        for run in (other, tiny_run)
    )
    margins = ours - theirs
    better, worse = compared["better"], compared["worse"]
    assert compared["compared_with"] == tiny_run.name
    assert better[0]["margin_nats"] == pytest.approx(margins.max(), abs=1e-4)
    assert worse[0]["margin_nats"] == pytest.approx(margins.min(), abs=1e-4)
    assert better[0]["position"] == margins.argmax() + 1
    assert len(better) == len(worse) == 4


@pytest.mark.parametrize("differs", ["vocabulary", "tokens"])
def test_predictions_of_runs_on_two_corpora_are_not_compared(
    tiny_runs, tiny_run, monkeypatch, refused, differs
):
    def on_another_corpus(self: SplitReader, run: object) -> SplitReader:
        read = SplitReader(self.run, self.split, self.top)
        setattr(read, differs, getattr(read, differs)[::-1])
        return read

    monkeypatch.setattr(SplitReader, "reader_of", on_another_corpus)
    other = run_of(tiny_runs, "toy").path
    line = [f"run={other}", "random=1", "hits=1", "margins=4", f"compared_with={tiny_run}"]
    assert f"compared_with={tiny_run} is a run on another corpus" in refused("predictions", *line)


def test_the_run_that_is_compared_with_alone_may_have_changed(tiny_runs, tiny_run, monkeypatch):
    other = run_of(tiny_runs, "toy").path
    changed = {other: {"tests.live_bytes.LiveBytes": "its earlier code"}}
    monkeypatch.setattr(load, "own_classes", lambda folder: changed.get(folder.path, {}))
    loaded = load_run(tiny_run, "best", None, None, with_changed_code=True)
    read = SplitReader(loaded, "test", 5).reader_of(select_run("compared_with", str(other)))
    assert (loaded.changed, read.run.changed) == ((), ("tests.live_bytes.LiveBytes",))


@pytest.mark.parametrize(
    ("data", "data_root", "expected"),
    [({"root": "its"}, None, None), ({"root": "its"}, "given", "given"), ({}, "given", None)],
)
def test_a_run_that_is_compared_with_finds_its_own_corpus(
    tiny_run, monkeypatch, data, data_root, expected
):
    """Unless data_root= says where both are; a corpus without files has none."""
    reader = SplitReader(load_run(tiny_run, "best", None, None), "test", 5)
    other, run, roots = select_run("compared_with", str(tiny_run)), reader.run, []
    monkeypatch.setattr(RunFolder, "read_config", lambda self: {"data": data})
    monkeypatch.setattr(split_reader, "load_run", lambda *of, **_: roots.append(of[2]) or run)
    reader.run = run._replace(config={"data": {"root": "of the first"}}, data_root=data_root)
    reader.reader_of(other)
    assert roots == [expected]


def test_a_run_is_measured_with_the_threads_asked_for_or_with_its_own(tiny_run, monkeypatch):
    told: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    for threads in (2, None):
        load_run(tiny_run, "best", None, threads)
    assert told == [2, RunFolder(tiny_run).read_config()["threads"]]


def test_a_run_whose_folder_of_analyses_was_removed_is_evaluated(lmkit, tiny_run):
    shutil.rmtree(tiny_run / "analysis", ignore_errors=True)
    lmkit("evaluate", f"run={tiny_run}", "method=dynamic", "method.batch_size=5")
    assert list(tiny_run.glob("analysis/gradients_*.pt"))


@pytest.mark.parametrize(
    ("command", "option", "expected"),
    [
        ("predictions", "margins=-1", "margins must be a whole number of at least 0, but is -1"),
        ("predictions", "compared_with=nowhere", "compared_with=nowhere selects no run"),
        ("predictions", "compared_with={runs}", "selects 2 runs"),
        ("predictions", "texts=[3]", "texts must be a list such as [the company said], not [3]"),
        ("predictions", "texts=the", "texts must be a list such as [the company said], but is"),
        ("predictions", "positions=3", "positions must be a list such as [70,300], but is 3"),
        ("predictions", "texts=[nonsense]", "texts: 'nonsense' is not in the run's vocabulary"),
        ("embeddings", "benchmarks=nowhere", "nowhere/EN-WS-353-ALL.txt does not exist"),
        ("dialogue", "shown=1", "it is no dialogue run"),
        ("nearest_softmax", "dim=599", "dimension 599 is every matrix of 599 contexts"),
        ("rank", "contexts=al", "at least 2 or \"all\", but is 'al'"),
        ("nearest_softmax", "iterations=0", "iterations must be a whole number of at least 1"),
        ("gradient_bottleneck", "contexts=0", "contexts must be a whole number of at least 1"),
        ("press_robustness", "contexts=10", "contexts must be a whole number of at least 11"),
        ("press_robustness", "noise=[]", "noise must be a list"),
        ("press_robustness", "noise=[0]", "noise must be greater than 0"),
        ("press_robustness", "factorisation=lu", "factorisation must be one of svd, qr"),
        ("rank", "matrix=transformed_logits", "only a head with one context and a transform"),
        ("rank", "matrix=logits", "matrix must be one of log_probs, transformed_logits"),
        ("rank", "checkpoint=first", "checkpoint must be one of best, last"),
        ("rank", "split=tests", "split must be one of train, valid, test"),
        ("samples", "prompt=nonsense", "prompt: 'nonsense' is not in the run's vocabulary"),
        ("samples", "prompt=3", "prompt must be a text, but is 3; quote it"),
        ("samples", "temperature=0", "temperature must be greater than 0, but is 0"),
    ],
)
def test_what_cannot_be_measured_is_named(refused, tiny_runs, tiny_run, command, option, expected):
    assert expected in refused(command, f"run={tiny_run}", option.format(runs=tiny_runs))


def test_what_is_measured_of_weights_that_the_run_no_longer_has_is_not_stored(tiny_run):
    class Resumed(Logits):
        def measure(self, subject: Subject) -> Recorded:
            outcome = super().measure(subject)
            subject.folder.reopen()
            return outcome

    folder = RunFolder(tiny_run)
    analysis = Resumed(split="test", contexts=150, bins=20)
    found = measure_runs(analysis, [folder])
    assert found.measured == []
    assert "it was trained further meanwhile" in found.left_out[tiny_run.name]
    assert not list(folder.analysis.iterdir())


def test_a_run_that_was_reopened_before_its_turn_is_not_measured(tiny_run):
    folder = RunFolder(tiny_run)
    folder.reopen()
    found = measure_runs(Logits(split="test", contexts=150, bins=20), [folder])
    assert "it is trained further: measure it again" in found.left_out[tiny_run.name]
    assert not list(folder.analysis.iterdir())


def test_histogram_of_all_logits_and_curve_of_the_transform(tiny_run):
    run = load_run(tiny_run, "best", None, None)
    analysis = Logits(split="test", contexts=150, bins=20)
    ((_, one),) = measure_runs(analysis, [RunFolder(tiny_run)]).measured
    found = one.record.model_dump()
    stored = json.loads((tiny_run / "analysis" / "logits.json").read_text())
    assert (stored["kind"], stored["transform"]) == ("logits", "PiecewiseLinear")
    assert found["num_contexts"] == 150
    shown = dict(record_rows(one.record))
    assert shown["histogram"] == "edges: 21 values; density: 20 values"
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
    logits.requires_grad_()
    model.head.transform(logits).sum().backward()
    assert mean_slope(found) == pytest.approx(float(logits.grad.mean()), rel=0.01)


def test_embeddings_of_runs(lmkit, tiny_runs, tiny_run, tmp_path):
    words = load_run(tiny_run, "best", None, None).data.corpus.vocabulary
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    for file in BENCHMARKS.values():
        lines = [f"{words[i]}\t{words[i + 1]}\t{i}" for i in range(1, 9)]
        (folder / file).write_text("\n".join([*lines, "absent word 1"]))
    lmkit("embeddings", f"run={tiny_runs}", f"benchmarks={folder}")
    for run in (tiny_run, run_of(tiny_runs, "toy").path):
        vectors = load_run(run, "best", None, None).model.trunk.embedding_weight.detach()
        cosines = torch.cosine_similarity(vectors[1:9], vectors[2:10])
        rho = stats.spearmanr(range(1, 9), cosines).statistic
        content = written(run, "embeddings")
        assert content["spearman"]["MEN"] == pytest.approx(rho)
        assert content["mean_spearman"] == pytest.approx(rho)  # all files are the same
        assert (content["pairs"]["MEN"], content["skipped"]["MEN"]) == (9, 1)
        assert content["emb_dim"] == 8


def test_without_benchmarks_the_components_are_left(lmkit, tiny_run):
    printed = lmkit("embeddings", f"run={tiny_run}")  # the toy language lies in no folder
    assert "no word similarity: give the benchmarks as benchmarks=FOLDER" in printed
    content = written(tiny_run, "embeddings")
    assert content["spearman"] == {}
    assert 1 <= content["components_75"] <= content["components_95"]


def texts(run, **options: float | None) -> list[list[int]]:
    usual = {"num_texts": 2, "length": 8, "temperature": 1.0, "top_k": None, "seed": 1}
    return generate(run.model, [0, 5], **usual | options, advance=lambda: None)


def test_texts_are_those_of_the_seed(mos):
    assert texts(mos) == texts(mos)
    assert texts(mos) != texts(mos, seed=2)
    assert texts(mos)[0] != texts(mos)[1]


def test_one_likeliest_word_is_the_greedy_text(mos):
    text = [0, 5]
    for _ in range(8):
        text.append(int(plain_log_probs(mos, text)[-1].argmax()))
    assert texts(mos, top_k=1) == texts(mos, temperature=1e-320) == [text[2:]] * 2


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, None), (0.5, None), (2.0, 10)])
def test_words_are_drawn_by_their_probability(mos, temperature, top_k):
    drawing = {"num_texts": 4000, "length": 1, "temperature": temperature, "top_k": top_k}
    drawn = [word for (word,) in texts(mos, **drawing)]
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


def test_a_folder_with_an_unfinished_or_damaged_run_names_it(lmkit, refused, tiny_runs, tiny_run):
    other = run_of(tiny_runs, "toy").path
    (tiny_run / "checkpoints" / "best.ckpt").write_bytes(b"")
    printed = lmkit("samples", f"run={tiny_runs}", "length=2")
    assert f"left out: {tiny_run.name}: " in printed
    assert (other / "analysis" / "samples.json").exists()
    (other / "result.json").unlink()
    error = refused("samples", f"run={tiny_runs}", "length=2")
    assert error.startswith("no run could be measured")


def test_samples_are_printed_and_written(lmkit, tiny_run):
    words = load_run(tiny_run, "best", None, None).data.corpus.vocabulary
    prompt = f"prompt={words[1]} {words[2]}"
    printed = lmkit("samples", f"run={tiny_run}", "length=12", "texts=2", prompt)
    content = written(tiny_run, "samples")
    assert (content["kind"], content["seed"], content["top_k"]) == ("samples", 1, None)
    assert len(content["texts"]) == 2
    for number, text in enumerate(content["texts"], 1):
        assert text.startswith(f"{words[1]} {words[2]}")
        assert f"text {number}\n{text}\n" in printed
    assert printed.count(content["texts"][0][:30]) == 1
    lmkit("samples", f"run={tiny_run}", "length=12", "texts=2", prompt)
    assert written(tiny_run, "samples") == content


def test_points_that_diverge_are_counted_and_the_best_of_the_others_is_taken(
    lmkit, refused, tiny_run
):
    line = ("evaluate", f"run={tiny_run}", "method=dynamic", "method.batch_size=20")
    search = (*line, "search=true", "search_tokens=100", "method.decay_grid=[0.0]")
    printed = " ".join(lmkit(*search, "method.lr_grid=[0.0,1e-3,1e30]").split())
    note = "at 1 of 3 points of the search the perplexity is not finite"
    assert note in printed
    found = written(tiny_run, "evaluate_dynamic_test")
    assert {point["lr"] for point in found["search_points"]} == {0.0, 1e-3}
    assert found["search_diverged"] == 1
    for words, message in (
        ((*search, "method.lr_grid=[1e30]"), "is finite at none of the 1 points of the search"),
        ((*line, "method.lr=1e30"), "the test perplexity of method=dynamic lr=1e+30 decay"),
    ):
        assert message in refused(*words)
    assert written(tiny_run, "evaluate_dynamic_test") == found


def test_a_softmax_is_nearest_to_itself_and_one_of_fewer_dimensions_is_not(
    lmkit, tiny_runs, tiny_run
):
    softmax = run_of(tiny_runs, "toy").path
    line = (f"run={tiny_runs}", "contexts=80", "iterations=20")
    printed = lmkit("nearest_softmax", *line)
    assert "of the nearest" in printed
    own, mixture = (written(run, "nearest_softmax_test_80_8") for run in (softmax, tiny_run))
    assert own["divergence"] < 1e-8
    assert own["nearest_perplexity"] == pytest.approx(own["perplexity"], rel=1e-4)
    assert own["held_out"] == mixture["held_out"] == 80
    assert own["held_out_divergence"] < 1e-6
    assert own["held_out_divergence"] < mixture["held_out_divergence"]
    reader = SplitReader(load_run(tiny_run, "best", None, None), "test", 5)
    assert mixture["perplexity"] == pytest.approx(np.exp(-reader.log_probs[:80].mean()), rel=1e-5)
    lmkit("nearest_softmax", *line, "dim=1", "held_out=0")
    one = written(softmax, "nearest_softmax_test_80_1")
    assert one["divergence"] > 1e-7
    assert one["held_out"] == 0
    assert one["held_out_divergence"] is None


def test_a_result_has_what_is_true_of_the_toy_language(tiny_run):
    folder = RunFolder(tiny_run)
    data, metrics = folder.read_config()["data"], folder.read_result().metrics
    language = make(data, "data", ToyLanguage)
    names = ("true_rank", "floor_ppl", "entropy_ppl")
    floor, entropy = map(math.exp, language.floor_and_entropy("test"))
    assert [metrics[name] for name in names] == [data["rank"], floor, entropy]
    assert metrics["test_bits_per_token"] == pytest.approx(math.log2(metrics["test_ppl"]))


def test_predictions_are_at_the_positions_of_their_seed(lmkit, tiny_run):
    lmkit("predictions", f"run={tiny_run}", "random=3", "hits=300", "seed=2")
    content = written(tiny_run, "predictions")
    tokens = load_run(tiny_run, "best", None, None).data.corpus.test
    drawn = [each["position"] for each in content["contexts"] if each["source"] == "random"]
    assert drawn == random_positions(tokens, 3, 2)
    assert content["hit_positions"] == random_positions(tokens, 300, 2)
    assert content["top5"] == sum(rank <= 5 for rank in content["hit_ranks"]) / 300


def test_the_mean_slope_is_that_at_the_logits():
    curve = {"logit": [0.0, 1.0, 2.0], "transformed": [0.0, 1.0, 5.0]}
    histogram = {"edges": [0.0, 1.0, 2.0], "density": [0.9, 0.1]}
    assert mean_slope({"curve": curve, "histogram": histogram}) == pytest.approx(1.3)


def test_the_models_perplexity_is_the_same_whatever_softmax_is_sought(lmkit, tiny_runs):
    softmax = run_of(tiny_runs, "toy").path
    for dim in (8, 1):
        lmkit("nearest_softmax", f"run={softmax}", "contexts=80", "iterations=20", f"dim={dim}")
    own, one = (written(softmax, f"nearest_softmax_test_80_{dim}") for dim in (8, 1))
    assert one["perplexity"] == own["perplexity"]
    assert one["nearest_perplexity"] != one["perplexity"]


def test_contexts_held_out_are_not_those_of_the_fit():
    generator = torch.Generator().manual_seed(1)
    column, row, others = (
        torch.randn(n, m, generator=generator) for n, m in ((30, 1), (1, 9), (20, 9))
    )
    log_p = torch.log_softmax(torch.cat([column @ row, others]), 1)  # the first are a softmax
    sizes = {"contexts": 30, "dim": 1, "iterations": 50, "held_out": 20}
    analysis = NearestSoftmaxDistance(split="test", **sizes)
    found, held_out = analysis._found("mine", log_p, torch.zeros(50, dtype=torch.long), 30, 1)
    assert found.divergence < 1e-4 < 0.1 < held_out


def test_the_rank_of_a_softmax_is_its_dimension_and_two(lmkit, tiny_runs):
    softmax = run_of(tiny_runs, "toy").path
    lmkit("truncation", f"run={softmax}", "contexts=50")
    assert written(softmax, "truncation_test_50")["bound"] == 8 + 2


def test_texts_of_the_likeliest_word_are_equal(lmkit, tiny_run):
    lmkit("samples", f"run={tiny_run}", "length=12", "texts=2", "top_k=1")
    first, second = written(tiny_run, "samples")["texts"]
    assert first == second


def test_arrays_of_an_earlier_measurement_go(tiny_run):
    class WithArrays(Logits):
        def measure(self, subject: Subject) -> Recorded:
            return super().measure(subject)._replace(arrays={"ones": np.ones(2)})

    for kind in (WithArrays, Logits):
        measure_runs(kind(split="test", contexts=150, bins=20), [RunFolder(tiny_run)])
        is_there = (tiny_run / "analysis" / "logits.npz").exists()
        assert is_there == (kind is WithArrays)


def test_the_edge_of_a_grid_in_any_order_is_told(lmkit, tiny_run):
    line = ("evaluate", f"run={tiny_run}", "method=dynamic", "method.batch_size=20", "search=true")
    grids = ("method.decay_grid=[0.0]", "method.lr_grid=[0.3,0.0,0.2]", "search_tokens=100")
    assert "the best lr is at the edge of method.lr_grid" in lmkit(*line, *grids)
