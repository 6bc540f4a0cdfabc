"""A head on stored contexts against the whole model that they come from.

Shapes: T window length, B batch.
"""

import copy
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra.errors import HydraException

from lmkit.data import subwords
from lmkit.data.corpus import Corpus
from lmkit.errors.user_error import UserError
from lmkit.experiment.definition import define
from lmkit.experiment.finetuning import finetuning_config
from lmkit.experiment.load import load_run
from lmkit.experiment.make import make
from lmkit.experiment.model_size import model_sizes, model_without_weights
from lmkit.experiment.objects import make_data, make_model
from lmkit.experiment.run import run
from lmkit.fixed_trunk import cache, composition
from lmkit.fixed_trunk.corpus import ContextsOfRun
from lmkit.fixed_trunk.start import start_as
from lmkit.fixed_trunk.trunk import FixedTrunk
from lmkit.heads.head import Head, HeadParts
from lmkit.heads.mixtape import Mixtape
from lmkit.heads.mixtures import HiddenLayer, SingleContext
from lmkit.heads.transforms import Identity, PiecewiseLinear, SoftCap
from lmkit.measures.model_spectra import model_spectrum
from lmkit.measures.perplexity import mean_nll, perplexity, safe_exp
from lmkit.runs.array_files import final_spectrum, read_spectrum
from lmkit.runs.folder import RunFolder
from lmkit.training.head_module import HeadModule
from lmkit.trunk.trunk import State
from tests.fixed_trunk.conftest import COMMON
from tests.heads.conftest import MIXTURES, D, E, V
from tests.tiny import SMALL, run_of, trained

EXPERT = ["head/mixture=softmaxes", "head.mixture.num_experts=2", "head.mixture.latent_dropout=0"]


def made(config: dict) -> tuple[HeadModule, object]:
    """The untrained model of a head alone, and its data."""
    corpus = make(config["data"], "data", Corpus).load()
    torch.manual_seed(5)
    model = make_model(config, torch.from_numpy(corpus.train_word_counts()))
    return model, make_data(config, corpus)


def test_the_trunks_own_head_has_its_runs_numbers_to_the_last_bit(trunk_run, head_config):
    model, data = made(head_config())
    start_as(model.head, load_run(trunk_run.path, "best", None, 1).model.head)
    result = trunk_run.read_result().metrics
    assert perplexity(model, data.eval_batches("test"), "test").perplexity == result["test_ppl"]
    assert safe_exp(mean_nll(model, data.eval_batches("valid"))) == result["valid_ppl"]
    measures = result["test_spectrum"]
    spectrum = model_spectrum(model, data.eval_batches("test"), measures["num_contexts"])
    stored = read_spectrum(final_spectrum(trunk_run, "log_probs"))
    assert np.array_equal(spectrum.singular_values.numpy(), stored.singular_values_S)
    assert spectrum.measures.to_dict() == measures


@pytest.mark.parametrize("head", [["head/transform=gss"], EXPERT, ["head.decoder_rank=3"]])
def test_training_equals_that_of_the_whole_model_with_a_frozen_trunk(trunk_run, head_config, head):
    """Fifty steps of clipped SGD in the text's order; the trunk without dropout, state carried."""
    config = head_config(*head, "windows.batch_size=4", "windows.bptt=10")
    alone, data = made(config)
    whole = load_run(trunk_run.path, "best", None, 1)
    trunk, head_of_whole = whole.model.trunk.eval().requires_grad_(False), copy.deepcopy(alone.head)
    start = copy.deepcopy(alone.head.decoder_weight)
    words = make_data(config, whole.source.load())
    heads = (alone.head, head_of_whole)
    optimizers = [torch.optim.SGD(each.parameters(), lr=5.0) for each in heads]
    state: State = trunk.initial_state(4)
    pairs = list(zip(data.train_batches, words.train_batches, strict=True))
    assert len(pairs) >= 50
    for contexts, window in pairs[:50]:
        output = trunk(window.inputs_TB, state)
        state = output.state
        hidden_TBD = alone.trunk(contexts.inputs_TB, []).dropped_TBD
        torch.testing.assert_close(hidden_TBD, output.dropped_TBD, rtol=0, atol=1e-6)
        losses = [
            alone.head.nll(hidden_TBD, contexts.targets_TB),
            head_of_whole.nll(output.dropped_TBD, window.targets_TB),
        ]
        for each, loss, optimizer in zip(heads, losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(each.parameters(), 0.25)
            optimizer.step()
    for name, weight in alone.head.state_dict().items():
        torch.testing.assert_close(weight, head_of_whole.state_dict()[name], rtol=1e-6, atol=1e-6)
    assert (alone.head.decoder_weight - start).abs().max() > 0.1


def test_the_trunks_dropout_is_of_its_contexts():
    trunk = FixedTrunk(7, emb_dim=4, out_dim=4, output_dropout=0.5).train()
    output = trunk(torch.ones(5, 3, 4), [])
    assert set(output.dropped_TBD.unique().tolist()) == {0.0, 2.0}
    assert (output.raw_TBD == 1).all()


@pytest.mark.parametrize("start", ["fresh", "trunk"])
def test_a_run_that_goes_on_ends_with_the_bits_of_one_never_stopped(train_head, tmp_path, start):
    options = ["windows=contexts", "windows.batch_size=100", "optimizer=adamw"]
    options += [f"head.start={start}"]
    options += ["head/transform=gss", "trunk.output_dropout=0.2", "patience=null"]
    whole = train_head(*options, f"runs_dir={tmp_path / 'whole'}")
    train_head(*options, "max_epochs=1")
    resumed = train_head(*options)
    assert resumed.read_result().metrics == whole.read_result().metrics
    assert resumed.path.name == whole.path.name


def test_two_runs_on_one_trunk_have_one_kind_of_data_and_other_contexts_another(
    trained_runs, head_config
):
    def sha256(*overrides: str, **of: object) -> str:
        return make(head_config(*overrides, **of)["data"], "data", Corpus).fingerprint()

    softmax, gss = sha256(), sha256("head/transform=gss", "seed=7")
    others = {sha256(of=run_of(trained_runs, "mos").path), sha256("trunk.dtype=bfloat16")}
    assert softmax == gss
    assert len({softmax, *others}) == 3


def test_the_run_says_on_which_contexts_it_is(train_head, trunk_run, monkeypatch):
    calls = []

    def watch(name: str) -> None:
        method = getattr(ContextsOfRun, name)
        monkeypatch.setattr(
            ContextsOfRun, name, lambda self, *of: calls.append((name, self)) or method(self, *of)
        )

    watch("load")
    watch("head")
    folder = train_head("max_epochs=1", "head/transform=gss", "head.start=trunk")
    (asked,) = (corpus for name, corpus in calls if name == "head")
    assert calls[0] == ("load", asked)  # the start is by the corpus that the run has
    names = folder.read_identity().names
    assert (names.head, names.corpus) == ("GSS", "the contexts of toy, seed 141")
    assert folder.path.name.startswith(f"head_on_{trunk_run.path.name}-")
    assert "starting with the trunk's own decoder, at valid perplexity" in folder.log.read_text()
    identity = json.loads(folder.identity.read_text())["settings"]
    assert str(trunk_run.path.parent) not in json.dumps(identity)


def test_runs_that_were_moved_with_their_trunk_are_measured(
    train_head, trunk_run, tmp_path, monkeypatch
):
    head = train_head("max_epochs=1")
    runs = tmp_path / "moved"
    for each in (head, trunk_run):
        shutil.copytree(each.path, runs / each.path.name)
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path / "of_another_machine")
    loaded = load_run(runs / head.path.name, "best", None, None)
    assert Path(loaded.config["data"]["folder"]) == runs / trunk_run.path.name
    assert len(loaded.data.one_column("valid")) > 0
    config = finetuning_config(RunFolder(runs / head.path.name), {}, None, None)
    assert Path(config["data"]["folder"]) == runs / trunk_run.path.name


def test_a_trunk_is_found_where_all_runs_were_moved_to(head_config, trunk_run, tmp_path):
    """By the command of a sweep's point, which names the earlier place."""
    moved = tmp_path / "runs" / trunk_run.path.name
    shutil.copytree(trunk_run.path, moved)
    assert head_config(of=f"before/{moved.name}")["data"]["folder"] == str(moved)


def test_a_trunk_that_is_gone_is_named(train_head, trunk_run, tmp_path, monkeypatch):
    there = tmp_path / "there" / trunk_run.path.name
    shutil.copytree(trunk_run.path, there)
    head = train_head("max_epochs=1", of=there)
    shutil.rmtree(there)
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path / "of_another_machine")
    loaded = load_run(head.path, "best", None, None)
    with pytest.raises(UserError, match=f"{there}, whose contexts these are, is needed here"):
        loaded.data.one_column("valid")


def test_the_start_is_the_best_until_an_epoch_beats_it(train_head, trunk_run, capsys):
    """SGD at a rate that leaves the trunk's own decoder for good."""
    theirs = trunk_run.read_result().metrics
    folder = train_head("head.start=trunk", "sgd_lr=5000", "max_epochs=1")
    metrics = folder.read_result().metrics
    assert (metrics["best_epoch"], metrics["valid_ppl"]) == (0, theirs["valid_ppl"])
    assert metrics["test_ppl"] == theirs["test_ppl"]
    assert 1 < metrics["train_ppl"] < theirs["train_ppl"]  # without the trunk's dropout
    assert (
        "no epoch is better than the weights that the run started from" in capsys.readouterr().out
    )
    line = ("head.start=trunk", "sgd_lr=5000", "max_epochs=3", "trigger=never", "patience=1")
    budget = train_head(*line).read_result().budget  # the start counts, too
    assert (budget.epochs, budget.stopped) == (1, "patience")
    better = train_head("head.start=trunk", "sgd_lr=5000", "max_epochs=1", "optimizer.lr=0.5")
    assert better.read_result().metrics["best_epoch"] == 1


def test_contexts_of_one_rms_leave_what_the_trunks_decoder_predicts(
    train_head, head_config, trunk_run
):
    """trunk.rms=0.5, against the mean square of all stored training contexts."""
    options = ["head.start=trunk", "trunk.rms=0.5", "max_epochs=1"]
    options += ["windows=contexts", "windows.batch_size=100"]
    folder = train_head(*options)
    ppl = trunk_run.read_result().metrics["valid_ppl"]
    assert f"at valid perplexity {ppl:.2f}" in folder.log.read_text()
    loaded = load_run(folder.path, "best", None, 1)
    contexts = loaded.data.train_columns.inputs_SB
    assert float(loaded.model.trunk.factor) == pytest.approx(
        0.5 / float(np.sqrt(np.mean(contexts.numpy().astype(np.float64) ** 2))), rel=1e-6
    )
    output = loaded.model.trunk.eval()(contexts, [])
    assert float(output.dropped_TBD.double().square().mean().sqrt()) == pytest.approx(0.5)
    metrics = folder.read_result().metrics
    test = perplexity(loaded.model, loaded.data.eval_batches("test"), "test")
    assert test.perplexity == metrics["test_ppl"]
    assert define(head_config(*options[:1], *options[2:])).folder.path != folder.path


KINDS = [mixture for mixture in MIXTURES if mixture != "doc"]  # which takes all layers


@pytest.mark.parametrize("factor", [1, 0.3])
@pytest.mark.parametrize("kind", [*KINDS, "low rank", "softcap", "mixtape"])
def test_a_head_of_the_trunks_kind_starts_with_its_log_p_at_any_scale(kind, factor):
    def make_head() -> Head:
        mixture = MIXTURES.get(kind, lambda: SingleContext(E))()
        transform = SoftCap(0.5) if kind == "softcap" else PiecewiseLinear(9, 2.0, frozen=False)
        parts = HeadParts(
            mixture=mixture, transform=transform, word_counts_V=torch.randint(9, (V,))
        )
        if kind == "mixtape":
            sizes = {"num_experts": 4, "gate_dim": 3, "own_share": 0.5, "latent_dropout": 0.0}
            head: Head = Mixtape(parts, in_dim=D, emb_dim=E, **sizes)
        else:
            head = Head(parts, decoder_rank=3 if kind == "low rank" else None)
        for parameter in head.parameters():
            torch.nn.init.normal_(parameter)
        return head

    torch.manual_seed(1)
    own, head = make_head(), make_head()
    hidden_TBD = torch.randn(3, 2, own.mixture.in_dim)
    start_as(head, own, factor)
    torch.testing.assert_close(head.log_probs(factor * hidden_TBD), own.log_probs(hidden_TBD))


def test_another_mixture_is_asked_for_where_contexts_have_not_the_decoders_size():
    own, head = (
        Head(HeadParts(mixture=mixture, transform=Identity(), word_counts_V=torch.zeros(V)))
        for mixture in (HiddenLayer(D, E, 7, 0.0), SingleContext(D))
    )
    with pytest.raises(UserError, match=r"head/mixture=none leaves .* choose another mixture"):
        start_as(head, own)
    with pytest.raises(UserError, match=rf"choose head\.mixture\.emb_dim={D}$"):
        start_as(own, head)


def test_a_mixture_that_does_not_say_what_reads_contexts_is_refused_at_another_scale():
    class Own(HiddenLayer):
        readers = ()

    parts = HeadParts(mixture=Own(D, E, 7, 0.0), transform=Identity(), word_counts_V=torch.zeros(V))
    start_as(Head(parts), Head(parts))
    with pytest.raises(UserError, match=r"Own must name its linear layers .* as `readers`"):
        start_as(Head(parts), Head(parts), 0.3)


@pytest.mark.parametrize("tokenizer", [["spaces"], ["bpe", "data.vocab_size=265"]])
def test_a_trunks_vocabulary_and_subwords_are_those_of_its_checkpoint(
    head_config, tmp_path, monkeypatch, tokenizer
):
    line = "w1 w2 w3 w4 w5 w6 and some more \n"
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(line * 60)
    options = ["data=text", f"data.root={tmp_path}", f"data.tokenizer={tokenizer[0]}"]
    sizes = SMALL[SMALL.index("trunk.emb_dim=8") :]
    trunk = trained(tmp_path / "trunks", *COMMON, *sizes, "max_epochs=2", *options, *tokenizer[1:])
    monkeypatch.setattr(subwords, "trained_byte_pairs", None)  # none is trained again
    config = head_config(of=trunk.path)["data"]
    own = make(config, "data", Corpus)
    sha256, vocabulary = own.fingerprint(), own.load().vocabulary
    (tmp_path / "train.txt").write_text(("some w6 \n" + line) * 60)
    edited = make(config, "data", Corpus)
    assert edited.fingerprint() != sha256
    assert edited.load(vocabulary).vocabulary == vocabulary  # as measurements do
    with pytest.raises(
        UserError, match=f"the text of {trunk.path} is another now, or data.root= n"
    ):
        edited.load()
    (tmp_path / "test.txt").write_text("w1 walrus \n" * 60)
    if tokenizer == ["spaces"]:
        with pytest.raises(UserError, match=r"test\.txt, line 1: 'walrus' is not in the vocab"):
            edited.load(vocabulary)
    else:
        assert edited.load(vocabulary).vocabulary == vocabulary


def test_a_trunks_text_is_found_where_it_was_or_where_the_environment_says(
    head_config, tmp_path, monkeypatch
):
    for folder in ("old", "new"):
        (tmp_path / folder / "penn").mkdir(parents=True)
        for split in ("train", "valid", "test"):
            (tmp_path / folder / f"penn/{split}.txt").write_text(
                "w1 w2 w3 w4 w5 w6 and more \n" * 60
            )
    monkeypatch.setenv("LMKIT_DATA", str(tmp_path / "old"))
    sizes = SMALL[SMALL.index("trunk.emb_dim=8") :]
    trunk = trained(tmp_path / "trunks", *COMMON, *sizes, "max_epochs=1", "data=penn")
    monkeypatch.setenv("LMKIT_DATA", str(tmp_path / "new"))
    assert head_config(of=trunk.path)["data"]["root"] == str(tmp_path / "old")
    shutil.rmtree(tmp_path / "old")
    assert head_config(of=trunk.path)["data"]["root"] == str(tmp_path / "new")


@pytest.mark.parametrize("overrides", [["trunk.rms=0.5"], ["windows=contexts"]])
def test_only_the_head_has_a_size(head_config, overrides):
    """A decoder of 60 words on contexts of 8 numbers; a product has two in the backward pass."""
    found = model_sizes(model_without_weights(head_config(*overrides), 60))
    assert found["trunk"] == (0, 0, 0, 0, 0)
    assert found["head"][3:] == found["total"][3:] == (2 * 60 * 8, 3 * 2 * 60 * 8)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["head.tie_weights=true"],
            "no embedding: head.tie_weights=true and lmkit embeddings need",
        ),
        (["trunk.of=nowhere"], r"trunk\.of=nowhere selects no run"),
        (["trunk.of=hf:nowhere"], "needs a text: data=penn"),
        (["trunk.window=5"], r"is for trunk\.of=hf:FOLDER"),
        (["trunk.dtype=float16"], r"trunk\.dtype must be one of float32, bfloat16"),
        (["data=toy"], r"leave out data="),
        (["+data.train_tokens=9"], r"data\.train_tokens is for trunk\.of=hf:FOLDER; a run has its"),
        (["data.name=mine"], r"data\.name is for trunk\.of=hf:FOLDER"),
        (["data.root=/there"], r"data\.root=/there is for a text in files, and that of "),
        (["objective.ar_weight=2"], "objective.ar_weight regularises the trunk's output"),
        (["experiment=toy"], "trunk=fixed needs experiment=fixed_trunk or one that builds on it"),
        (["head.start=warm"], r"head\.start must be one of fresh, trunk"),
        (["head=mixtape", "head.emb_dim=4", "head.start=trunk"], r"choose head\.emb_dim=8"),
        (["head/mixture=doc"], "trunk=fixed has those of the last"),
    ],
)
def test_what_cannot_be(head_config, overrides, message):
    with pytest.raises(UserError, match=message):
        run(head_config(*overrides))


def test_a_trunk_of_the_users_must_have_its_sizes_as_options(head_config, monkeypatch):
    trained = {"windows": {"eval_length": 70}, "trunk": {"emb_dim": 8}}
    monkeypatch.setattr(composition, "_read_run", lambda *_: ("sha256", trained))
    with pytest.raises(UserError, match=r"has no trunk\.out_dim: a trunk that is to be fixed"):
        head_config()


def test_the_sizes_of_a_trunk_are_no_options(head_config):
    with pytest.raises(HydraException, match=r"Could not override 'trunk\.out_dim'"):
        head_config("trunk.out_dim=5")


def test_a_trunk_is_one_run_by_the_common_grammar(head_config, trained_runs):
    with pytest.raises(UserError, match=r"selects 2 runs \(mos-"):
        head_config(of=trained_runs)
    data = head_config(of=f"{trained_runs} name:mos")["data"]
    assert data["title"] == "the contexts of mos, seed 141"
    assert data["short_title"] == "the trunk of mos, seed 141"
