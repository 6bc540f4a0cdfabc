"""Heads on the contexts of small pretrained models, against what `lmkit rank hf=` measures."""

import gc
import json
import random
import re
import shutil
from pathlib import Path

import pytest
import torch

from lmkit.data.corpus import Corpus
from lmkit.data.tokenizer import each_word
from lmkit.errors.user_error import UserError
from lmkit.experiment.load import load_run
from lmkit.experiment.make import make
from lmkit.experiment.objects import make_data, make_model
from lmkit.experiment.run import run
from lmkit.fixed_trunk.composition import implied
from lmkit.fixed_trunk.start import start_as
from lmkit.measures.perplexity import mean_nll
from lmkit.pretrained.loading import facts_of, load_pretrained
from lmkit.pretrained.model import PretrainedModel
from lmkit.pretrained.source import find_checkpoints
from lmkit.runs.metrics import MetricsFile
from tests.fixed_trunk.conftest import COMMON
from tests.pretrained_models import SIZES, TEXT, make_gpt2, make_tokenizer
from tests.tiny import composed

pytest.importorskip("transformers")
from transformers import OPTConfig, OPTForCausalLM

WINDOW, STRIDE = 24, 10


@pytest.fixture
def config_of(models, tmp_path):
    """The configuration of a head alone on a model's contexts."""

    def make_config(name: str, *overrides: str) -> dict:
        line = ["trunk=fixed", f"trunk.of=hf:{models / name}", "data=text", f"data.root={models}"]
        windows = [f"trunk.window={WINDOW}", f"trunk.stride={STRIDE}", "windows.batch_size=4"]
        line += [*windows, f"runs_dir={tmp_path / 'runs'}", *COMMON, "max_epochs=1"]
        return composed(*implied([*line, *overrides]))

    return make_config


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma", "cohere", "phi"])
def test_a_head_that_starts_as_the_models_own_has_its_perplexity(models, config_of, name):
    """Of each split; gemma has a soft cap, cohere a scale, phi a bias, llama a first token."""
    config = config_of(name, "head.start=trunk")
    source = make(config["data"], "data", Corpus)
    corpus = source.load()
    model = make_model(config, torch.from_numpy(corpus.train_word_counts()))
    start_as(model.head, source.head())
    data = make_data(config, corpus)
    (checkpoint,) = find_checkpoints(str(models / name), None)
    for split in ("valid", "test"):
        text = (models / f"{split}.txt").read_text("utf-8")
        loaded = load_pretrained(checkpoint, text, window=WINDOW, stride=STRIDE)
        expected = mean_nll(loaded.model, loaded.windows)
        windows = data.one_column(split)
        assert windows.num_targets == loaded.windows.num_targets
        assert mean_nll(model, windows) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_default_rate_does_not_leave_the_models_own_decoder(config_of, name):
    config = config_of(name, "head.start=trunk", "windows.batch_size=1")
    assert config["optimizer"]["lr"] == 0.1
    assert config_of(name, "sgd_lr=3")["optimizer"]["lr"] == 3
    folder = run(config)
    rows = MetricsFile(folder.metrics).read()
    (first,) = (row["valid/ppl"] for row in rows if "valid/ppl" in row)
    start = re.search(r"at valid perplexity ([\d.,]+)", folder.log.read_text())
    assert first < 1.01 * float(start[1].rstrip(".").replace(",", ""))


@pytest.mark.parametrize(
    ("model", "num_rows", "head"),
    [
        ("gpt2", 2000, ["head/mixture=softmaxes", "head.mixture.num_experts=3"]),
        ("llama", 304, ["head/transform=plif", "head.transform.knots=50"]),
        ("llama", 304, ["head=mixtape", "windows=contexts"]),
    ],
)
def test_a_run_on_a_pretrained_trunk_is_as_any(models, config_of, model, num_rows, head):
    folder = run(config_of(model, "head.start=trunk", *head))
    result = folder.read_result().metrics
    assert result["test_ppl"] > 1
    assert result["test_bits_per_byte"] > 0
    assert folder.read_identity().names.corpus == f"the contexts of {model} on text"
    loaded = load_run(folder.path, "best", None, 1)
    assert len(loaded.data.corpus.vocabulary) == num_rows  # with rows that stand for no token
    tokenizer = loaded.source.tokenizer_by(loaded.data.corpus.vocabulary)
    text = (models / "test.txt").read_text("utf-8")
    whole, first = (len(tokenizer.ids("text", part)) for part in (text, next(each_word(text))))
    assert result["test_text"]["tokens"] == whole - first
    nll = mean_nll(loaded.model, loaded.data.eval_batches("test"))
    assert nll == pytest.approx(result["test_nll"], rel=1e-6)


def test_a_model_of_other_letters_is_checked_on_the_text(tmp_path):
    """Its tokenizer knows none of English."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    letters = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate("ACGT\n")}, merges=[]))
    letters.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(tokenizer_object=letters).save_pretrained(tmp_path / "m")
    make_gpt2(num_words=5).save_pretrained(tmp_path / "m")
    for split in ("train", "valid", "test"):
        lines = ("".join(random.Random(n).choices("ACGT", k=20)) for n in range(40))
        (tmp_path / f"{split}.txt").write_text("".join(f"{line}\n" for line in lines))
    of = f"trunk.of=hf:{tmp_path}/m*"  # a pattern, of one model
    text = ["data=text", f"data.root={tmp_path}", "windows.batch_size=4"]
    config = composed(*implied(["trunk=fixed", of, *text, *COMMON, "max_epochs=1"]))
    assert config["data"]["name"] == "m-text"
    assert make(config["data"], "data", Corpus).load().columns("valid", 1).targets_SB.max() == 4


def test_the_columns_of_a_pretrained_trunk_are_cut_from_one_stream(config_of):
    config = config_of("gpt2")
    corpus = make(config["data"], "data", Corpus).load()
    one, four = corpus.columns("train", 1), corpus.columns("train", 4)
    steps = len(four.targets_SB)
    assert steps == (len(corpus.train) - 1) // 4
    for column in range(4):
        part = slice(column * steps, (column + 1) * steps)
        assert torch.equal(four.targets_SB[:, column], one.targets_SB[part, 0])
        assert torch.equal(four.inputs_SB[:, column], one.inputs_SB[part, 0])


def test_contexts_of_other_windows_are_other_data(config_of):
    lines = ([], ["trunk.window=20"], ["trunk.stride=9"])
    sources = [make(config_of("gpt2", *line)["data"], "data", Corpus) for line in lines]
    assert len({source.fingerprint() for source in sources}) == len(lines)


def test_a_model_is_let_go_once_its_contexts_are_stored(config_of):
    source = make(config_of("gpt2", "trunk.stride=9")["data"], "data", Corpus)
    corpus, before = source.load(), models_in_memory()
    corpus.columns("train", 4)
    assert models_in_memory() == before


def models_in_memory() -> int:
    gc.collect()
    return sum(type(each) is PretrainedModel for each in gc.get_objects())


def test_another_model_in_the_folder_is_another_run_and_refused_by_this_one(models, config_of):
    config = config_of("gpt2", "trunk.stride=7")
    config["data"]["weights_sha256"] = "0" * 64
    with pytest.raises(UserError, match="is not the one of these contexts"):
        run(config)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["trunk.window=0"], r"trunk\.window must be a whole number of at least 2, but is 0"),
        (["trunk.stride=x"], r"trunk\.stride must be a whole number of at least 1, but is 'x'"),
        (["trunk.stride=25"], r"trunk\.stride=25 must be at most 24 with windows of 24"),
        (["trunk.of=hf:./nowhere"], r"trunk\.of=hf:\./nowhere is no folder"),
        (["data.tokenizer=bpe"], r"data\.tokenizer does not go with trunk\.of=hf:.*/gpt2: its own"),
        (["data.vocab_size=300"], r"data\.vocab_size does not go with trunk\.of=hf:"),
        (["trunk.of=hf:"], r"trunk\.of=hf: must name models"),
    ],
)
def test_a_mistake_is_named_before_contexts_are_computed(config_of, overrides, message):
    with pytest.raises(UserError, match=f"^{message}"):
        config_of("gpt2", *overrides)


@pytest.mark.parametrize(
    ("is_older", "message"), [(True, r"has no tokenizer\.json; "), (False, "comes without")]
)
def test_a_model_without_its_tokenizers_file_is_named(
    models, config_of, tmp_path, is_older, message
):
    """GPT-2 in its older form, which transformers reads, or without a tokenizer."""
    folder = Path(shutil.copytree(models / "gpt2", tmp_path / "gpt2"))
    for file in folder.glob("tokenizer*"):
        file.unlink()
    if is_older:
        model = json.loads((models / "gpt2/tokenizer.json").read_text())["model"]
        (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
        (folder / "merges.txt").write_text("\n".join(map(" ".join, model["merges"])))
    with pytest.raises(UserError, match=rf"^trunk\.of=hf:{re.escape(str(folder))}.*{message}"):
        config_of(str(folder))


def test_contexts_have_the_size_that_the_output_layer_reads(tmp_path):
    """OPT may project its last hidden state before it."""
    config = OPTConfig(vocab_size=304, ffn_dim=8, word_embed_proj_dim=8, **SIZES)
    OPTForCausalLM(config).save_pretrained(tmp_path / "opt")
    make_tokenizer(TEXT, begins=True).save_pretrained(tmp_path / "opt")
    (checkpoint,) = find_checkpoints(str(tmp_path / "opt"), None)
    model = load_pretrained(checkpoint, TEXT, window=WINDOW, stride=STRIDE).model
    assert facts_of(checkpoint, "hf").dim == model.head.decoder_weight.shape[1] == 8


def test_a_transform_of_a_parameter_a_word_follows_a_soft_cap(config_of):
    transform = "head.transform._target_=tests.heads.test_head.Temperature"
    config = config_of("gemma", "head.start=trunk", transform)
    model = make_model(config, torch.ones(304, dtype=torch.int64))
    assert model.head.transform.transform.scale_V.shape == (304,)
    assert model.head.transform.capped.cap == 2


@pytest.fixture
def without_weights(models, tmp_path, monkeypatch) -> str:
    """A hub's model whose config and tokenizer have been read, and are in the cache."""
    snapshot = tmp_path / "models--someone--gpt2" / "snapshots" / ("0" * 40)
    shutil.copytree(models / "gpt2", snapshot, ignore=shutil.ignore_patterns("*.safetensors"))
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return "trunk.of=hf:someone/gpt2"


def test_weights_that_are_not_there_are_missed_before_the_text_is_read(without_weights, config_of):
    with pytest.raises(
        UserError, match=r"^trunk\.of=hf:someone/gpt2: weights must be in saf.* none"
    ):
        config_of("gpt2", without_weights)
    (checkpoint,) = find_checkpoints("someone/gpt2", None)
    with pytest.raises(UserError, match=r"^hf=someone/gpt2: weights must be in safetensors, "):
        load_pretrained(checkpoint, "", window=None, stride=None)  # a text that is too short


def test_a_network_that_breaks_before_the_weights_is_told_in_one_line(
    without_weights, config_of, monkeypatch
):
    def breaks(*_: object, **__: object) -> str:
        raise ConnectionError("Connection reset by peer\nand more")

    monkeypatch.setattr("huggingface_hub.snapshot_download", breaks)
    with pytest.raises(UserError, match=r"^trunk\.of=hf:someone/gpt2: Connection reset by peer$"):
        config_of("gpt2", without_weights)
