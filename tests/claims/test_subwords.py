"""Subwords, as typed: what a run of them measures beside one of words, and what cannot be asked."""

import math
import re
import shutil
from pathlib import Path

import pytest
import torch

import lmkit as package
from lmkit.data.toy import ToyLanguage
from lmkit.runs.checksums import parse_json
from lmkit.runs.folder import RunFolder
from tests import tiny
from tests.claims.conftest import typed_in
from tests.faults.comparison import assert_same_run
from tests.pretrained_models import make_tokenizer

TINY = ("data=text", *tiny.without("data."))
SUBWORDS = "penn_softmax"  # the name of a published experiment, which a run of subwords is not
BPE = ("data.tokenizer=bpe", "data.vocab_size=280")
PRETRAINED = "pretrained_tokens"  # the name of a run whose tokenizer is one of transformers
HF = ("data.tokenizer=hf", "data.tokenizer_of=gpt2")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text, a run of its words and two of subwords; only analyses of them are written to it."""
    folder = tmp_path_factory.mktemp("subwords")
    (folder / "text").mkdir()
    toy = ToyLanguage(
        name="toy", num_words=40, rank=5, context_strength=1.0, zipf_exponent=1.0, seed=1,
        sentence_length=9, train_tokens=3000, valid_tokens=400, test_tokens=300,
    ).load()  # fmt: skip
    for split in ("train", "valid", "test"):
        words = " ".join(toy.vocabulary[index] for index in toy.tokens(split))
        text = words.replace("w3 ", "<unk> ").replace("w2 ", "Grüße ").replace(" <eos>", " \n")
        # the first word, w39, is of several subwords
        (folder / "text" / f"{split}.txt").write_bytes(f" w39 {text} \n".encode())
    with pytest.MonkeyPatch.context() as monkeypatch:
        lmkit = typed_in(folder, monkeypatch)
        lmkit("train", *TINY, "data.root=text", "name=words")
        lmkit("train", *TINY, "data.root=text", f"name={SUBWORDS}", *BPE)
        text = (folder / "text" / "train.txt").read_text()
        make_tokenizer(text, begins=True).save_pretrained(folder / "gpt2")
        lmkit("train", *TINY, "data.root=text", f"name={PRETRAINED}", *HF)
    return folder


def run_in(place: Path, name: str) -> RunFolder:
    return RunFolder(next((place / "runs").glob(f"{name}-*/")))


def nats(place: Path, name: str, split: str) -> tuple[float, int, int, int]:
    """Those of all words but the first, read plainly in one column; tokens, words, and bytes."""
    run = package.load(run_in(place, name).path)
    file = place / "text" / f"{split}.txt"
    text = file.read_text()
    first, *words = re.findall(r"[^\S\n]*(?:\n|\S+)", text)
    tokens = run.ids(first)
    count_from = len(tokens)
    if name == PRETRAINED:
        tokens = run.tokenizer.ids("text", text)
    for word in () if name == PRETRAINED else words:
        if name != SUBWORDS:
            tokens += run.ids([word.strip() or "<eos>"])
        elif word.strip():
            tokens += run.tokenizer.ids("text", word)
        else:
            assert (run.vocabulary[run.tokenizer.line_end()], word) == ("ĠĊ", " \n")
            tokens.append(run.tokenizer.line_end())
    inputs_T1 = torch.tensor(tokens[:-1]).unsqueeze(1)
    with torch.no_grad():
        output = run.model.trunk(inputs_T1, run.model.trunk.initial_state(1))
        log_probs_NV = run.model.head.log_probs(run.model.head_input(output)).double()
    nlls = -log_probs_NV[range(len(tokens) - 1), tokens[1:]]
    counted = nlls[count_from - 1 :]
    return float(counted.sum()), len(counted), len(words), len(file.read_bytes())


@pytest.mark.parametrize("name", ["words", SUBWORDS, PRETRAINED])
def test_perplexity_a_word_and_bits_a_byte_are_those_of_a_plain_computation(
    place, name, monkeypatch
):
    monkeypatch.chdir(place)  # where the tokenizer's folder is found
    metrics = run_in(place, name).read_result().metrics
    total, tokens, words, num_bytes = nats(place, name, "test")
    assert metrics["test_text"]["tokens"] == tokens
    assert metrics["test_text"]["words"] == words
    assert metrics["test_text"]["bytes"] == num_bytes
    assert metrics["test_word_ppl"] == pytest.approx(math.exp(total / words), rel=1e-5)
    assert metrics["test_bits_per_byte"] == pytest.approx(total / math.log(2) / num_bytes, rel=1e-5)


def test_a_word_of_a_word_level_run_is_a_token(place):
    words, subwords = (run_in(place, name).read_result().metrics for name in ("words", SUBWORDS))
    assert words["test_word_ppl"] == words["test_ppl"]
    assert words["test_text"]["tokens"] == words["test_text"]["words"] == words["test_tokens"]
    assert subwords["test_text"]["tokens"] > subwords["test_text"]["words"]
    same = ("words", "bytes", "sha256")
    assert [words["test_text"][k] for k in same] == [subwords["test_text"][k] for k in same]
    assert subwords["test_ppl"] < subwords["test_word_ppl"]


def test_evaluation_of_valid_compares_in_one_column_too(place, monkeypatch, capsys):
    lmkit = typed_in(place, monkeypatch)
    folder = run_in(place, SUBWORDS)
    lmkit("evaluate", f"run={folder.path}", "split=valid")
    content = parse_json((folder.analysis / "evaluate_static_valid.json").read_bytes())
    total, _, words, num_bytes = nats(place, SUBWORDS, "valid")
    assert content["word_ppl"] == pytest.approx(math.exp(total / words), rel=1e-5)
    assert content["bits_per_byte"] == pytest.approx(total / math.log(2) / num_bytes, rel=1e-5)
    assert "bits per byte" in capsys.readouterr().out
    lmkit("evaluate", f"run={folder.path}", "method=cache", "method.weight=0")
    content = parse_json((folder.analysis / "evaluate_cache_test.json").read_bytes())
    metrics = folder.read_result().metrics
    assert content["word_ppl"] == pytest.approx(metrics["test_word_ppl"], rel=1e-6)
    assert content["bits_per_byte"] == pytest.approx(metrics["test_bits_per_byte"], rel=1e-6)


def test_a_cache_counts_in_the_perplexity_a_word(place, monkeypatch):
    lmkit = typed_in(place, monkeypatch)
    folder = run_in(place, "words")
    lmkit("evaluate", f"run={folder.path}", "method=cache", "split=valid")
    content = parse_json((folder.analysis / "evaluate_cache_valid.json").read_bytes())
    assert content["word_ppl"] == content["ppl"]


def test_tables_and_results_say_what_compares(place, monkeypatch):
    lmkit = typed_in(place, monkeypatch)
    for name in ("words", SUBWORDS):
        shown = lmkit(
            "train", *TINY, "data.root=text", f"name={name}", *(BPE if name == SUBWORDS else ())
        )
        assert "already finished" in shown
        assert "test bits per byte" in shown
        assert ("test perplexity per word" in shown) == (name == SUBWORDS)
    rows = package.results("runs").set_index("experiment").to_dict("index")
    metrics = run_in(place, SUBWORDS).read_result().metrics
    assert rows[SUBWORDS]["test_word_ppl"] == metrics["test_word_ppl"]
    assert rows[SUBWORDS]["test_text.bytes"] == rows["words"]["test_text.bytes"]
    assert rows[SUBWORDS]["corpus"] == "text, BPE 280"
    assert "(280 subwords)" in run_in(place, SUBWORDS).log.read_text()


def test_analyses_read_and_write_subwords(place, monkeypatch, capsys):
    lmkit = typed_in(place, monkeypatch)
    folder = run_in(place, SUBWORDS)
    lmkit("samples", f"run={folder.path}", "length=30", "texts=1", 'prompt="w1 Grüße"')
    (text,) = parse_json((folder.analysis / "samples.json").read_bytes())["texts"]
    assert text.startswith(" w1 Grüße")
    longest = max((place / "text" / "test.txt").read_text().split("\n"), key=len)
    words = " ".join(longest.split()[1:4])
    lmkit("predictions", f"run={folder.path}", f'texts=["{words}"]', "random=1", "hits=5")
    contexts = parse_json((folder.analysis / "predictions.json").read_bytes())["contexts"]
    assert contexts[0]["position"] is not None
    assert contexts[0]["context"].endswith(words)
    lmkit("embeddings", f"run={folder.path}")
    content = parse_json((folder.analysis / "embeddings.json").read_bytes())
    assert content["spearman"] == {}
    assert "the tokens are subwords, not words" in " ".join(capsys.readouterr().out.split())
    run = package.load(folder.path)
    assert len(run.log_probs(" w1 Grüße")) == len(run.ids(" w1 Grüße")) > 2


def test_a_text_of_other_words_is_read_with_the_runs_own_subwords(place, monkeypatch, tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(" Words of which the run knows none .\n")
    lmkit = typed_in(place, monkeypatch)
    folder = run_in(place, SUBWORDS)
    lmkit("evaluate", f"run={folder.path}", f"data_root={tmp_path}", "checkpoint=last")
    (file,) = folder.analysis.glob("evaluate_static_test_last@*.json")
    content = parse_json(file.read_bytes())
    assert not content["measured_on"]["is_own"]
    assert content["bits_per_byte"] > 0


def test_a_run_of_subwords_that_goes_on_ends_with_the_same_bits(place, tmp_path):
    line = (*TINY, f"data.root={place / 'text'}", f"name={SUBWORDS}", *BPE)
    tiny.trained(tmp_path, *line, "max_epochs=1")
    assert_same_run(run_in(place, SUBWORDS), tiny.trained(tmp_path, *line))


def test_a_run_of_subwords_is_finetuned_with_its_subwords(place, tmp_path, monkeypatch):
    run = shutil.copytree(run_in(place, SUBWORDS).path, tmp_path / "runs" / "of_subwords")
    lmkit = typed_in(tmp_path, monkeypatch)
    quiet = ("logger=csv", "callbacks.progress_bar=null", "callbacks.spectrum=null")
    lmkit("finetune", f"run={run}", f"data_root={place / 'text'}", "lr=1", "max_epochs=1", *quiet)
    (finetuned,) = (f.parent for f in run.parent.glob("*_finetune-*/result.json"))
    metrics, before = (RunFolder(f).read_result().metrics for f in (finetuned, run))
    assert metrics["test_text"] == before["test_text"]
    assert metrics["test_ppl"] < metrics["test_word_ppl"]
    assert metrics["test_word_ppl"] != before["test_word_ppl"]


@pytest.mark.parametrize("name", ["words", SUBWORDS])
def test_a_loaded_run_reads_a_text_as_if_a_line_had_ended(place, name):
    run = package.load(run_in(place, name).path)
    end = run.tokenizer.line_end()
    assert end != 0
    with torch.no_grad():
        output = run.model.trunk(torch.tensor([[end]]), run.model.trunk.initial_state(1))
        first_1V = run.model.head.log_probs(run.model.head_input(output))
    assert torch.allclose(run.log_probs("w5 w6")[:1], first_1V, atol=1e-5)


def test_a_loaded_run_of_words_reads_an_unknown_word_as_unk(place):
    run = package.load(run_in(place, "words").path)
    for text in ("w5 nowhere w6", ["w5", "nowhere", "w6"]):
        assert run.ids(text) == run.ids("w5 <unk> w6")


def test_a_loaded_run_reads_every_end_of_line_alike(place):
    run = package.load(run_in(place, SUBWORDS).path)
    assert run.ids("w5 w6\r\nw7\r") == run.ids("w5 w6\nw7\n")
