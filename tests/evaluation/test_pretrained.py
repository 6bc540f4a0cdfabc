"""Pretrained models of transformers, read through the commands.

Shapes: N contexts, D hidden size, V vocabulary.
"""

import csv
import gc
import hashlib
import json
import shutil
import socket
import sys
import weakref
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from lmkit.data.subwords import Subwords
from lmkit.pretrained.loading import load_pretrained
from lmkit.pretrained.model import pretrained_model
from lmkit.pretrained.source import find_checkpoints
from lmkit.pretrained.windows import StrideWindows, TokenizedText, window_and_stride
from lmkit.runs.array_files import read_arrays
from lmkit.runs.checksums import checked_json, parse_json
from tests.pretrained_models import SIZES, TEXT, make_tokenizer

transformers = pytest.importorskip("transformers")
WINDOW, STRIDE, CONTEXTS = 24, 10, 300
pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def here(models, tmp_path, monkeypatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def measured_by(here, lmkit) -> Callable[..., dict]:
    """A command that measures one model; returns what it wrote."""

    def command(*arguments: str) -> dict:
        lmkit(*arguments)
        (file,) = here.glob("*/*/analysis/*.json")
        return parse_json(file.read_bytes())

    return command


@cache
def own_rows(folder: Path) -> tuple[Tensor, Tensor]:
    """log P (N, V) in float64 by the model's own logits, and the targets, from a plain loop.

    A window is read anew every STRIDE tokens; each context's row comes from the first window that
    has it.
    """
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    bare = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    whole = tokenizer(TEXT)["input_ids"]
    begins = whole[: whole.index(bare[0])] if len(whole) > len(bare) else []
    ids = begins + bare  # nothing that comes behind a text
    first = max(1, len(begins))  # place of the first token to be predicted
    rows: list[Tensor] = []
    start = 0
    while len(rows) < len(ids) - first:
        window = ids[start : min(start + WINDOW, len(ids) - 1)]
        window = begins + window[len(begins) :]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([window])).logits[0].double()
        rows += list(torch.log_softmax(logits, dim=-1)[len(rows) + first - 1 - start :])
        start += STRIDE
    return torch.stack(rows), torch.tensor(ids[first:])


def output_weight(folder: Path) -> Tensor:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    return model.get_output_embeddings().weight.detach().double()


def options(models: Path, name: str, *more: str) -> list[str]:
    text = f"text={models / 'text.txt'}"
    return [f"hf={models / name}", text, f"window={WINDOW}", f"stride={STRIDE}", *more]


@pytest.mark.parametrize(
    ("name", "method", "logits"),
    [
        ("gpt2", "factors", "h W'"),
        ("llama", "factors", "h W'"),
        ("phi", "factors", "h W' + b"),
        ("cohere", "factors", "0.3 h W'"),
        ("gemma", "gram", "2 tanh(h W' / 2)"),
    ],
)
def test_rank_is_that_of_the_models_own_log_softmax(
    name, method, logits, models, here, measured_by
):
    found = measured_by("rank", *options(models, name, f"contexts={CONTEXTS}"))
    rows_NV, targets_N = own_rows(models / name)
    rows_NV, targets_N = rows_NV[:CONTEXTS], targets_N[:CONTEXTS]

    assert found["pretrained"]["logits"] == logits
    folder = here / "pretrained" / name / "analysis"
    stored = read_arrays(folder / "rank_text.txt_log_probs_300.npz")
    expected = np.linalg.svd(rows_NV.numpy(), compute_uv=False)
    assert found["spectrum"]["method"] == method
    assert np.abs(stored["singular_values"] - expected).max() <= 1e-6 * expected[0]
    values = np.linalg.svd(output_weight(models / name).numpy(), compute_uv=False)
    assert stored["weight_singular_values"] == pytest.approx(values, rel=1e-10)
    stable_rank = (values**2).sum() / values[0] ** 2
    assert found["weight_spectrum"]["stable_rank"] == pytest.approx(stable_rank)

    nll_N = -rows_NV.gather(1, targets_N.unsqueeze(1))
    assert found["perplexity"] == pytest.approx(float(nll_N.mean().exp()), rel=1e-5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(models / name)
    last = CONTEXTS - 1 if name == "llama" else CONTEXTS  # its first context is <s>
    end = tokenizer(TEXT, add_special_tokens=False, return_offsets_mapping=True)
    num_bytes = len(TEXT[: end["offset_mapping"][last][1]].encode())
    bits = float(nll_N.sum()) / np.log(2)
    assert found["bits_per_byte"] == pytest.approx(bits / num_bytes, rel=1e-5)


@pytest.mark.parametrize("template", ["[gMASK] <sop> $A", "[CLS] $A [SEP]", "$A </s>"])
def test_every_window_begins_as_the_tokenizer_begins_a_text(template, models, here, measured_by):
    """GLM's two tokens, a `cls` in the place of a `bos`, an end that is no beginning."""
    folder = Path(shutil.copytree(models / "neox", here / "neox"))
    make_tokenizer(TEXT, template=template).save_pretrained(folder)
    found = measured_by("rank", *options(here, "neox", f"text={models / 'text.txt'}", "out=found"))
    assert (here / "found/neox").is_dir()
    rows_NV, targets_N = own_rows(folder)
    nll_N = -rows_NV.gather(1, targets_N.unsqueeze(1))
    assert found["spectrum"]["num_contexts"] == found["all_contexts"] == len(rows_NV)
    assert found["perplexity"] == pytest.approx(float(nll_N.mean().exp()), rel=1e-5)
    bits = float(nll_N.sum()) / np.log(2)
    assert found["bits_per_byte"] == pytest.approx(bits / len(TEXT.encode()), rel=1e-5)


def test_a_tokenizer_that_loses_text_gives_no_bits_per_byte(models, here, lmkit):
    folder = Path(shutil.copytree(models / "neox", here / "neox"))
    tokenizer = make_tokenizer(TEXT.lower())
    tokenizer.backend_tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.save_pretrained(folder)
    shown = lmkit("rank", *options(here, "neox", f"text={models / 'text.txt'}", "contexts=50"))
    (file,) = (here / "pretrained/neox/analysis").glob("*.json")
    found = parse_json(file.read_bytes())
    assert found["bits_per_byte"] is None
    assert found["perplexity"] > 1
    reason = "the tokenizer does not keep the text: in line "
    assert found["no_bits_per_byte"].startswith(reason)
    assert "becomes" in found["no_bits_per_byte"]
    assert "no bits per byte: the tokenizer" in " ".join(shown.split())


def test_what_a_killed_process_left_goes(models, here, lmkit):
    folder = here / "pretrained/neox"
    left = [folder / "analysis/.rank.json.0.tmp", folder / "spectra/.decoder_weight.npz.0.tmp"]
    for file in left:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    lmkit("rank", *options(models, "neox"))
    assert not any(file.exists() for file in left)
    assert [path.name for path in (here / "pretrained").iterdir()] == ["neox"]


@pytest.mark.parametrize("prefix", [(), (0,), (-2, -1, 0)])
@pytest.mark.parametrize("length", [2, 8, 9, 50])
def test_every_token_is_predicted_once_whatever_follows_it(length, prefix):
    windows = StrideWindows(np.arange(length), 8, 3, prefix)
    seen = list(windows)
    assert len(seen) == len(windows)
    targets = torch.cat([window.targets_TB[:, 0] for window in seen])
    assert targets.tolist() == list(range(1, length))
    assert windows.num_targets == length - 1
    for window in seen:
        inputs = window.inputs_TB[:, 0].tolist()
        assert inputs[-1] + 1 == window.targets_TB[-1, 0]
        assert len(inputs) <= 8
        assert tuple(inputs[: len(prefix)]) == prefix
        assert np.diff(inputs[len(prefix) :]).tolist() == [1] * (len(inputs) - len(prefix) - 1)
        if window.index:  # 5 = 8 - 3 of old ones; the first are the prefix's
            assert len(inputs) - window.num_targets == 5
    longer = StrideWindows(np.arange(length + 20), 8, 3, prefix)
    for window, other in zip(seen[:-1], longer, strict=False):
        assert torch.equal(window.inputs_TB, other.inputs_TB)


def test_the_gradients_share_is_that_in_the_weights_column_space(models, measured_by):
    found = measured_by("gradient_bottleneck", *options(models, "neox", "contexts=100"))
    rows_NV, targets_N = own_rows(models / "neox")
    gradient_NV = rows_NV[:100].exp()
    gradient_NV[torch.arange(100), targets_N[:100]] -= 1
    weight_VD = output_weight(models / "neox")
    passed_VN = weight_VD @ torch.linalg.lstsq(weight_VD, gradient_NV.T).solution
    assert found["share"] == pytest.approx(float(passed_VN.norm() / gradient_NV.norm()), rel=1e-4)
    assert (found["decoder_rank"], found["num_words"]) == (16, 304)


@pytest.mark.parametrize(
    ("name", "scale", "bound"), [("llama", 1.0, 33), ("cohere", 0.3, 33), ("phi", 1.0, 34)]
)
def test_a_step_moves_what_the_model_has(name, scale, bound, models, measured_by):
    """h itself, the weight, and a bias where there is one (phi); V = 304, D = 16, N = 20."""
    found = measured_by("gradient_bottleneck", *options(models, name, "contexts=20"))

    model = transformers.AutoModelForCausalLM.from_pretrained(models / name).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(models / name)
    ids = tokenizer(TEXT)["input_ids"][:WINDOW]
    layer, seen = model.get_output_embeddings(), []
    layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][0].double()))
    with torch.no_grad():
        own_NV = model(input_ids=torch.tensor([ids])).logits[0].double()[:20]
    hidden_ND, weight_VD = seen[0][:20], layer.weight.detach().double()
    bias_V = layer.bias.detach().double() if name == "phi" else torch.zeros(304).double()
    logits_NV = scale * (hidden_ND @ weight_VD.T + bias_V)
    assert torch.allclose(logits_NV, own_NV, rtol=1e-4, atol=1e-4)

    asked_NV = -torch.softmax(logits_NV, dim=-1)
    asked_NV[torch.arange(20), torch.tensor(ids[1:21])] += 1
    move_ND, move_VD = scale * asked_NV @ weight_VD, scale * asked_NV.T @ hidden_ND
    update_NV = scale * (move_ND @ weight_VD.T + hidden_ND @ move_VD.T)
    if name == "phi":
        update_NV += asked_NV.sum(0)
    update_NV -= update_NV.mean(dim=1, keepdim=True)
    cosine = (update_NV * asked_NV).sum() / update_NV.norm() / asked_NV.norm()
    assert found["update_cosine"] == pytest.approx(float(cosine), rel=1e-4)
    assert found["update_bound"] == 20  # the contexts are fewer
    found = measured_by("gradient_bottleneck", *options(models, name, "contexts=200"))
    assert found["update_bound"] == bound
    if name == "cohere":  # its contexts sum to zero
        assert found["update_rank"] == bound - 1
    else:
        assert bound - 1 <= found["update_rank"] <= bound


def test_the_token_that_begins_every_text_is_no_token_of_the_text(models, here, measured_by):
    """Of llama, whose tokenizer puts <s> before a text; all words but two lie between these."""
    folder = Path(shutil.copytree(models / "llama", here / "llama"))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    weight_VD = torch.nn.init.zeros_(model.get_output_embeddings().weight)
    weight_VD.data[[290, 291], 0] = torch.tensor([1.0, -1])
    model.save_pretrained(folder)
    line = options(here, "llama", f"text={models / 'text.txt'}", "contexts=20")
    found = measured_by("unargmaxable", *line)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    assert found["unargmaxable"] == 302
    assert (found["occurring"], found["occurrences"]) == (len(set(ids)), len(ids))
    assert found["occurrence_share"] == 1


@pytest.mark.parametrize("marks", ["<s>", "<unk>", "</s> <|endoftext|>"])
def test_special_tokens_in_a_text_are_text(marks):
    """PTB's <unk> costs every model its bytes, whatever its tokenizer keeps for itself."""
    text = f"the company {marks} said {marks}\n"
    plain, owning = (make_tokenizer(TEXT, begins=True) for _ in range(2))
    owning.add_special_tokens(
        {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<|endoftext|>"}
    )
    cut = [Subwords(tokenizer.backend_tokenizer) for tokenizer in (plain, owning)]
    tokens = [TokenizedText(text, tokenizer).tokens for tokenizer in cut]
    assert tokens[0].tolist() == tokens[1].tolist()
    assert tokens[0].tolist().count(plain.bos_token_id) == 1  # before the text
    assert cut[1].ids("texts", text) == tokens[0].tolist()[1:]


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_predictions_are_the_models_own(name, models, here, lmkit):
    line = ["positions=[1,23,24,25,200]", "random=0", "hits=50", "texts=[the company]"]
    shown = lmkit("predictions", *options(models, name, *line))
    assert "of 50 words at random" in shown
    found = parse_json((here / f"pretrained/{name}/analysis/predictions.json").read_bytes())
    rows_NV, targets_N = own_rows(models / name)
    entries = {entry["position"]: entry for entry in found["contexts"]}
    for position in (1, 23, 24, 25, 200):
        probs, target = rows_NV[position - 1].exp(), targets_N[position - 1]
        entry = entries[position]
        assert entry["target_prob"] == pytest.approx(float(probs[target]), rel=1e-4)
        assert entry["top_probs"] == pytest.approx(probs.topk(5).values.tolist(), rel=1e-4)
    assert any(entry["context"].endswith("company") for entry in found["contexts"])


def test_revisions_come_by_step_and_the_last_weights_last():
    found = find_checkpoints("someone/model", ["main", "step1000", "epoch3", "step20"])
    assert [each.revision for each in found] == ["epoch3", "step20", "step1000", "main"]


def test_a_window_is_1024_tokens_at_most_unless_more_are_asked_for():
    assert window_and_stride(None, None, 4096, ()) == (1024, 512)
    assert window_and_stride(2048, None, 4096, ()) == (2048, 1024)


def test_the_report_has_a_row_for_each_model_and_text(models, here, lmkit):
    """Of two checkpoints, a model without gradients and one with predictions alone."""
    measured, text = here / "pretrained", f"text={models / 'text.txt'}"
    for step in (9, 100):
        shutil.copytree(models / "gpt2", here / f"mine/checkpoint-{step}")
    shown = lmkit("rank", "hf=mine", text, "contexts=50")
    assert shown.index("mine@checkpoint-9") < shown.index("mine@checkpoint-100")
    lmkit("rank", f"hf={models / 'neox'}", text, "contexts=60")
    lmkit("gradient_bottleneck", "hf=mine", text, "contexts=20")
    lmkit("predictions", f"hf={models / 'llama'}", text, "positions=[5]", "random=0", "hits=0")
    (measured / "llama/analysis/predictions.json").write_text("{")
    shown = lmkit("report", "runs=pretrained")
    assert "left out: llama, predictions: pretrained/llama/analysis/predictions.json is " in shown
    assert shown.endswith("4 pretrained models: report/index.html\n")
    ranks = rows_of("models_rank")
    names = ["mine@checkpoint-9", "mine@checkpoint-100", "neox"]
    assert [name.partition(" (text.txt log probs ")[0] for name in ranks] == names
    last = measured / "mine@checkpoint-100/analysis"
    rank = parse_json((last / "rank_text.txt_log_probs_50.json").read_bytes())
    assert rank["pretrained"]["step"] == 100
    shown = ranks["mine@checkpoint-100 (text.txt log probs 50)"]
    for name in ("bits_per_byte", "press_rank", "decoder_entropy_rank"):
        assert float(shown[name]) == rank[name]
    gradient = parse_json((last / "gradient_bottleneck.json").read_bytes())
    shares = rows_of("models_gradient_bottleneck")
    assert float(shares["mine@checkpoint-100"]["share"]) == gradient["share"]


def rows_of(table: str) -> dict[str, dict[str, str]]:
    with Path(f"report/tables/{table}.csv").open(newline="") as lines:
        return {row[""]: row for row in csv.DictReader(lines)}


def test_models_that_were_measured_are_no_runs(models, here, lmkit, refused):
    lmkit("rank", *options(models, "neox", "contexts=20"))
    assert refused("rank", "run=pretrained").startswith("run=pretrained selects no run: ")
    assert refused("report", "runs=pretrained head:gss").startswith("runs=pretrained head:gss")
    assert lmkit("report", "runs=pretrained/neox").startswith("1 pretrained model: ")


def test_one_model_at_a_time_is_in_memory_and_one_too_large_is_left_out(
    models, here, lmkit, monkeypatch
):
    loaded = []

    def load(checkpoint, *arguments, **options):
        gc.collect()
        assert not any(model() for model in loaded)
        if checkpoint.place.endswith("step3"):
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB.")
        found = load_pretrained(checkpoint, *arguments, **options)
        loaded.append(weakref.ref(found.model))
        return found

    for step in (1, 2, 3):
        shutil.copytree(models / "gpt2", here / f"mine/step{step}")
    shutil.copytree(models / "bert", here / "mine/step4")
    monkeypatch.setattr("lmkit.pretrained.loading.load_pretrained", load)
    shown = lmkit("rank", "hf=mine/step*", f"text={models / 'text.txt'}", "contexts=50")
    assert len(loaded) == 2
    assert "left out: mine@step4" in shown  # which is no causal model
    assert "left out: mine@step3: CUDA out of memory: CUDA_VISIBLE_DEVICES= in front" in shown


def test_a_folder_is_read_without_the_network(models, monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    (checkpoint,) = find_checkpoints(str(models / "llama"), None)
    loaded = load_pretrained(checkpoint, "the company said", window=None, stride=None)
    assert (loaded.windows.window, loaded.windows.stride) == (32, 16)
    assert loaded.text.prefix == (0,)


def test_tokens_are_shown_with_their_spaces():
    tokenizer = Subwords(make_tokenizer(TEXT).backend_tokenizer)
    shown = tokenizer.shown(0)
    assert [shown[token] for token in tokenizer.encode("the company\n")] == ["the", "▁company", "↵"]


def spoiled(models: Path, here: Path, case: str) -> str:
    """A folder that cannot be measured, and the text's option."""
    folder = Path(shutil.copytree(models / "gpt2", here / case))
    config = folder / "config.json"
    if case == "bin":
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    elif case in ("shard", "above"):
        file = "shard.bin" if case == "shard" else "../up.safetensors"
        index = {"metadata": {}, "weight_map": {"transformer.wte.weight": file}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    elif case == "index":
        (folder / "model.safetensors.index.json").write_text("[" * 100_000)
    elif case == "code":
        own = {"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"}
        config.write_text(json.dumps({"model_type": "mine", "auto_map": own}))
    elif case == "layers":
        config.write_text(config.read_text().replace('"n_layer": 2', '"n_layer": 3'))
    elif case == "words":
        for file in folder.glob("tokenizer*"):
            file.unlink()
    elif case == "weights":
        config.write_text(
            json.dumps(json.loads(config.read_text()) | {"transformers_weights": "a.bin"})
        )
    elif case == "config":
        config.unlink()
    return case


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("bin", "hf=bin: weights must be in safetensors, but there are only pytorch_model.bin"),
        ("shard", "hf=shard: shard/model.safetensors.index.json names shard.bin: weights must be"),
        ("above", "hf=above: above/model.safetensors.index.json names ../up.safetensors: weights"),
        (
            "weights",
            "hf=weights: its config.json names a.bin as its weights, and lmkit reads model",
        ),
        ("index", "hf=index: index/model.safetensors.index.json is no index of weights"),
        ("code", "hf=code: it needs custom code, which lmkit does not run"),
        ("layers", "hf=layers: the weights of GPT2LMHeadModel lack transformer.h.2."),
        ("config", "hf=config holds no config.json: give a folder that save_pretrained wrote"),
        ("words", "hf=words: the model comes without a tokenizer"),
    ],
)
def test_a_folder_that_cannot_be_read_is_refused_in_one_line(case, expected, models, here, refused):
    error = refused("rank", f"hf={spoiled(models, here, case)}", f"text={models / 'text.txt'}")
    assert error.startswith(expected)
    assert not (here / "pretrained").exists()


def test_weights_in_another_format_may_lie_beside_safetensors(models, here):
    folder = Path(shutil.copytree(models / "gpt2", here / "gpt2"))
    index = {"metadata": {}, "weight_map": {"transformer.wte.weight": "pytorch_model-1.bin"}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    (checkpoint,) = find_checkpoints(str(folder), None)
    load_pretrained(checkpoint, "the company said", window=None, stride=None)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("hf={models}/bert", "BertLMHeadModel is no causal language model"),
        ("hf={models}/t5", "has an encoder and a decoder: it is no causal model"),
        ("hf=./nowhere", "hf=./nowhere is no folder"),
        ("hf=someone/model", "it is not a folder, and Hugging Face's hub cannot be reached"),
        ("hf={models}/gpt2 revision=step1", "revision is of names on the hub, but hf="),
        ("hf={models}/gpt2 window=33", "window=33 is more than the 32 tokens that the model can"),
        ("hf={models}/gpt2 window=8 stride=9", "stride=9 must be at most 8 with windows of 8"),
        ("hf={models}/gpt2 text=none.txt", "text=none.txt is no file"),
        ("hf={models}/gpt2 text=empty.txt", "text=empty.txt holds no text"),
        ("hf={models}/gpt2 text=bytes.txt", "text=bytes.txt is no text in UTF-8: byte 1"),
        ("hf={models}/gpt2 text=2026", "text must be a text, but is 2026; quotes make"),
        ("hf={models}/gpt2 text=null", "text is not set: the models of hf= read a file, text=FILE"),
        ("hf={models}/gpt2 split=valid", "split does not go with hf="),
        ("hf={models}/gpt2 matrix=transformed_logits", "only a head with one context and a"),
        ("run=runs", "text does not go with run="),
        ("hf=null", "run is not set: give it as run=RUNS, or pretrained models as hf=MODEL"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(
    arguments, expected, models, here, refused, monkeypatch
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (here / "empty.txt").write_text(" \n")
    (here / "bytes.txt").write_bytes(b"a\xff")
    line = arguments.format(models=models).split()
    if not any(word.startswith("text=") for word in line):
        line.append(f"text={models / 'text.txt'}")
    assert expected in refused("rank", *line)


def test_the_softmax_of_a_model_is_the_nearest(models, here, measured_by):
    found = measured_by("nearest_softmax", *options(models, "neox", "contexts=60"))
    assert found["num_contexts"] == 60
    assert found["divergence"] < 1e-8
    assert found["nearest_perplexity"] == pytest.approx(found["perplexity"], rel=1e-4)


def test_another_text_has_a_name_of_its_own(models, here, lmkit):
    lmkit("rank", *options(models, "neox", "contexts=20"))
    before = {path: path.read_bytes() for path in here.rglob("pretrained/*/analysis/*")}
    assert before
    (here / "text.txt").write_text(TEXT[::-1])
    sha256 = hashlib.sha256((here / "text.txt").read_bytes()).hexdigest()
    line = options(models, "neox", "text=text.txt", "contexts=20")
    lmkit("rank", *line)
    assert {path: path.read_bytes() for path in before} == before
    (other,) = here.rglob("pretrained/*/analysis/*@*.json")
    assert other.stem.endswith(f"@{sha256[:8]}")


def test_other_windows_need_a_folder_of_their_own(models, here, lmkit, refused):
    line = options(models, "gpt2", "contexts=20")
    lmkit("rank", *line)
    for more in ("window=16", "stride=5"):
        error = refused("truncation", *line, more)
        assert error.startswith(f"pretrained/gpt2 holds what was measured of {models / 'gpt2'} ")
        assert f" with window={WINDOW} stride={STRIDE}, not with " in error
        assert more in error
    lmkit("truncation", *line, "window=16", "out=narrow")
    lmkit("truncation", *line)


def test_a_window_has_no_place_that_positions_skip(models, here, lmkit):
    """The first token's is two after RoBERTa's padding, which has number 1."""
    sizes = SIZES | {"max_position_embeddings": 34, "vocab_size": 304, "is_decoder": True}
    model = transformers.RobertaForCausalLM(transformers.RobertaConfig(**sizes))
    model.save_pretrained(here / "roberta")
    make_tokenizer(TEXT).save_pretrained(here / "roberta")
    lmkit("rank", "hf=roberta", f"text={models / 'text.txt'}", "contexts=100")
    (file,) = (here / "pretrained/roberta/analysis").glob("rank*.json")
    assert parse_json(file.read_bytes())["pretrained"]["window"] == 32


def test_another_model_of_the_same_name_needs_a_folder_of_its_own(
    models, here, lmkit, refused, monkeypatch
):
    for owner, name in (("a", "gpt2"), ("b", "neox")):
        shutil.copytree(models / name, here / owner / "final")
    text = f"text={models / 'text.txt'}"
    both = refused("rank", "hf=[a/final,b/final]", text)
    assert "means two models with the name final: measure them apart, each with an out=" in both
    lmkit("rank", "hf=a/final", text, "contexts=20")
    with monkeypatch.context() as patch:
        patch.setattr("lmkit.pretrained.loading.load_pretrained", None)  # no weights are loaded
        error = refused("gradient_bottleneck", "hf=b/final", text, "contexts=20")
    assert error.startswith("pretrained/final holds what was measured of a/final: give b/final")
    lmkit("gradient_bottleneck", "hf=b/final", text, "contexts=20", "out=other")
    lmkit("gradient_bottleneck", f"hf={here}/a/final", text, "contexts=20")
    (here / "a/final").rename(here / "c")
    (here / "c").rename(here / "b/final/final")
    lmkit("rank", "hf=b/final/final", text, "contexts=20")
    file = here / "b/final/final/model.safetensors"
    weights = load_file(file)
    weights["transformer.wpe.weight"] += 1
    save_file(weights, file, {"format": "pt"})
    line = ("truncation", "hf=b/final/final", text, "contexts=20")
    assert refused(*line).startswith("pretrained/final holds what was measured of other weights at")
    other_words = {"weights": None, "tokenizer": "another"}
    no_words = {"tokenizer": None}
    for changed in (other_words, no_words, {"hf": "someone/final", "is_local": False}):
        for found in (here / "pretrained/final/analysis").glob("*.json"):
            stored = parse_json(found.read_bytes())
            stored["pretrained"] |= changed
            found.write_bytes(checked_json(stored))
        if changed is other_words:
            assert "final with another tokenizer: give" in refused(*line)
        if changed is no_words:  # nor weights are known
            lmkit(*line)
    assert refused(*line).startswith("pretrained/final holds what was measured of someone/final: ")


def test_the_extra_is_named_where_the_library_is_missing(models, here, refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    error = refused("rank", f"hf={models / 'gpt2'}", f"text={models / 'text.txt'}")
    assert error.endswith("libraries that are not installed: pip install transformers safetensors")


@pytest.mark.parametrize("share", [1.0, 1e-3])
def test_a_head_that_is_something_else_is_refused(share, models, here, refused, monkeypatch):
    forward = transformers.GPT2LMHeadModel.forward

    def squared(self, *args, **kwargs):
        output = forward(self, *args, **kwargs)
        output.logits = (1 - share) * output.logits + share * output.logits.square()
        return output

    monkeypatch.setattr(transformers.GPT2LMHeadModel, "forward", squared)
    error = refused("rank", *options(models, "gpt2"))
    assert "the logits of GPT2LMHeadModel are not h W' + b, not these times a number" in error


def test_a_factor_is_of_the_output_layers_bias_too(models, monkeypatch):
    forward = transformers.PhiForCausalLM.forward

    def scaled(self, *args, **kwargs):
        output = forward(self, *args, **kwargs)
        output.logits = 0.3 * output.logits
        return output

    monkeypatch.setattr(transformers.PhiForCausalLM, "forward", scaled)
    body = transformers.AutoModelForCausalLM.from_pretrained(models / "phi").eval()
    model = pretrained_model(body, torch.arange(20))
    assert model.logits_are == "0.3 (h W' + b)"
    torch.testing.assert_close(model.head.decoder_bias, 0.3 * body.lm_head.bias)
