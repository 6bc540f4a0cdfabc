"""The sequence-to-sequence model against the formulas of its papers, one pair at a time."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from lmkit.errors.user_error import UserError
from lmkit.experiment.objects import make_model
from lmkit.measures.perplexity import mean_nll
from tests.dialogue.conftest import MIXTURES, config, data_module, small_model


@pytest.fixture(scope="module")
def data(folder):
    return data_module(folder, batch_size=6)


def plain_log_probs(model, pairs, pair: int) -> torch.Tensor:
    """log P (T, V) of one response, word by word, without batches or padding."""
    trunk = model.trunk
    context, own = (torch.from_numpy(part.astype(int)) for part in pairs.context(pair))
    words = trunk.embedding_weight[context] + trunk.responder[own]
    states, (h, c) = trunk.encoder(words.unsqueeze(1))
    h, c = (
        torch.tanh(bridge(torch.cat([last[0], last[1]], 1))).unsqueeze(0)
        for bridge, last in zip(trunk.bridge, (h, c), strict=True)
    )
    rows, word = [], 0
    for target in pairs.response(pair):
        out, (h, c) = trunk.decoder(trunk.embedding_weight[word].view(1, 1, -1), (h, c))
        hidden = out.view(-1)
        if trunk.attends:
            weights = F.softmax(trunk.keys(states[:, 0]) @ hidden, dim=0)
            hidden = torch.cat([weights @ states[:, 0], hidden])
        rows.append(model.head.log_probs(torch.tanh(trunk.output(hidden)).view(1, 1, -1)))
        word = int(target)
    return torch.cat(rows)


@pytest.mark.parametrize("attention", ["general", "none"])
@pytest.mark.parametrize("mixture", MIXTURES)
@torch.no_grad()
def test_a_batch_is_its_pairs_one_by_one(data, mixture, attention):
    model = small_model(mixture, **{"trunk.attention": attention})
    pairs = data.pairs("train")
    chosen = [2, 3, 0, 5]
    batch = pairs.batch(chosen)
    rows = model.head.log_probs(model.read(batch, None).hidden_TBD)
    plain = [plain_log_probs(model, pairs, pair) for pair in chosen]
    expected = torch.cat(
        [log_p[t : t + 1] for t in range(len(batch.targets_TB)) for log_p in plain]
    )
    torch.testing.assert_close(rows, expected, rtol=1e-4, atol=1e-5)
    targets = batch.targets_TB[batch.is_word_TB]
    nll = -expected.gather(1, targets.unsqueeze(1)).mean()
    assert mean_nll(model, [batch]) == pytest.approx(float(nll), rel=1e-5)


@pytest.mark.parametrize("mixture", MIXTURES)
def test_padding_takes_no_part_in_any_gradient(data, mixture):
    model = small_model(mixture, num_words=14)  # the last two words never occur
    batch = data.pairs("train").batch([0, 2])

    def gradients(padding: int) -> dict[str, torch.Tensor]:
        pad = ~batch.is_word_TB
        context_pad = torch.arange(len(batch.context_SB)).unsqueeze(1) >= batch.context_lengths_B
        padded = replace(
            batch,
            targets_TB=batch.targets_TB.masked_fill(pad, padding),
            inputs_TB=batch.inputs_TB.masked_fill(pad, padding),
            context_SB=batch.context_SB.masked_fill(context_pad, padding),
        )
        assert pad.any()
        assert context_pad.any()
        model.zero_grad()
        hidden_1ND, targets_1N, _ = model.read(padded, None)
        model.head.nll(hidden_1ND, targets_1N).backward()
        return {name: p.grad.clone() for name, p in model.named_parameters()}

    first, second = gradients(12), gradients(13)
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=0, atol=0, msg=name)


@torch.no_grad()
def test_the_bias_starts_at_the_words_frequencies(data):
    model = small_model()
    words = data.corpus.train.words_W
    model.start_from_frequencies(data.corpus.train_word_counts())
    model.head.decoder_weight.zero_()
    log_probs = model.head.log_probs(torch.randn(1, 1, 6))[0]
    assert float(log_probs[0].exp()) == pytest.approx(((words == 0).sum() + 1) / (len(words) + 12))


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("trunk.attention", "dot", "must be one of general, none"),
        ("trunk.hidden_dim", 0, "must be a whole number of at least 1"),
        ("trunk.output_dropout", 1, "must be at least 0 and less than 1"),
        ("objective.tar_weight", 1, "must be 0 for DialogueModel"),
    ],
)
def test_bad_options_are_named(option, value, expected):
    with pytest.raises(UserError, match=f"{option} {expected}"):
        small_model(**{option: value})


@pytest.mark.parametrize("place", ["output", "embed"])
def test_the_decoder_drops_out_in_training_alone(data, place):
    rates = {f"trunk.{name}_dropout": 0.5 * (name == place) for name in ("output", "embed")}
    trunk = small_model(**rates, **{"trunk.hidden_dropout": 0.0}).trunk.eval()
    batch = data.pairs("train").batch([2, 0])
    memory, state = trunk.encode(batch.context_SB, batch.responder_SB, batch.context_lengths_B)
    for is_training in (False, True):
        trunk.train(is_training)
        one, two = (trunk.decode(batch.inputs_TB, memory, state)[0] for _ in range(2))
        assert torch.equal(one, two) is not is_training


def test_a_mixture_of_several_layers_is_refused():
    found = config("head/mixture=doc", "head.mixture.experts=[2,3]")
    with pytest.raises(UserError, match=r"^DirectOutputConnection takes .* Seq2Seq gives"):
        make_model(found, torch.zeros(12))


def test_two_layers_and_optimizers(data):
    for optimizer, schedule in (("adam", "constant"), ("sgd", "window_length")):
        choices = f"optimizer={optimizer}", f"schedule={schedule}"
        found = config("trunk.num_layers=2", *choices)
        model = make_model(found, torch.zeros(12))
        batch = data.pairs("train").batch([0])
        length = batch.sampled_length / found["windows"]["bptt"]
        expected = 1.0 if schedule == "constant" else length
        assert model.schedule.factor(batch) == expected
        assert model.read(batch, None).hidden_TBD.shape == (1, 3, 6)
        assert (model.trunk.encoder.num_layers, model.trunk.decoder.num_layers) == (2, 2)
        assert type(model.configure_optimizers()).__name__.lower() == optimizer
