"""Parameters, bytes and FLOPs of published configurations, against counts by hand.

FLOPs are two for each multiply-add of the matrix products; a product has two of its size in the
backward pass, one for its input and one for its weight.

Shapes: V vocabulary, E embedding, H hidden units of inner layers, K mixture components.
"""

import itertools

import pytest

from lmkit.experiment import model_size
from lmkit.experiment.model_size import Size, model_sizes, model_without_weights
from tests.tiny import composed

V = 10_000


def sizes(*overrides: str) -> dict[str, Size]:
    return model_sizes(model_without_weights(composed(*overrides), V))


def lstm(inputs: int, hidden: int) -> int:
    """FLOPs of a layer: input-to-hidden and hidden-to-hidden products of four gates."""
    return 2 * 4 * hidden * (inputs + hidden)


def by_hand(experiment: str) -> tuple[int, int]:
    """Forward FLOPs of trunk and head for a token."""
    if experiment == "penn_softmax":
        trunk = lstm(400, 1150) + lstm(1150, 1150) + lstm(1150, 400)
        return trunk, 2 * V * 400
    if experiment == "penn_transformer":
        # 10 layers: queries, keys, values and the output; gate, value and output of SwiGLU;
        # scores and weighted sum of a token's own place and the 140 before it
        layer = 2 * (4 * 400 * 400 + 3 * 400 * 1152) + 4 * 400 * 141
        return 10 * layer, 2 * V * 400
    trunk = lstm(280, 960) + lstm(960, 960) + lstm(960, 620)
    prior_and_latents = 2 * 620 * 15 + 2 * 620 * 15 * 280
    if experiment == "penn_moc":  # the latents are summed, then one product with the decoder
        return trunk, prior_and_latents + 2 * 15 * 280 + 2 * V * 280
    return trunk, prior_and_latents + 15 * 2 * V * 280


@pytest.mark.parametrize("experiment", ["penn_softmax", "penn_mos", "penn_moc", "penn_transformer"])
def test_flops_are_those_by_hand(experiment):
    found, (trunk, head) = sizes(f"experiment={experiment}"), by_hand(experiment)
    assert found["trunk"][3:] == (trunk, 3 * trunk)
    assert found["head"][3:] == (head, 3 * head)
    assert found["total"][3:] == (trunk + head, 3 * (trunk + head))


def test_words_with_gates_of_their_own_cost_mixtape_k_products_and_the_others_one():
    """Yang et al. 2019: four components whose gates are a tree of three, shared by rare words."""
    config = composed("experiment=penn_mixtape")
    model = model_without_weights(config, V)
    found, own = model_sizes(model)["head"], len(model.head.own_words_R)
    in_dim, emb_dim = config["trunk"]["out_dim"], config["trunk"]["emb_dim"]
    gate_dim, gates = config["head"]["gate_dim"], 3
    latents = 2 * in_dim * 4 * emb_dim
    of_gates = 2 * in_dim * gates * (gate_dim + 1) + 2 * gates * gate_dim * (own + 1)
    assert found.forward_flops == latents + of_gates + 2 * emb_dim * (V + 4 * own)


@pytest.mark.parametrize("tied", ["true", "false"])
def test_parameters_are_each_in_one_part(tied):
    config = composed("experiment=penn_mos", f"head.tie_weights={tied}")
    model = model_without_weights(config, V)
    found, parameters = model_sizes(model), list(model.parameters())
    assert all(p.is_meta for p in parameters)
    count = sum(p.numel() for p in parameters)
    assert found["total"][:3] == (count, count, 4 * count)
    assert found["trunk"].parameters == sum(p.numel() for p in model.trunk.parameters())
    # without ties the head has a decoder of its own
    assert (found["head"].parameters > V * 280) == (tied == "false")


def test_what_does_not_learn_is_counted_apart():
    plif = sizes("experiment=toy", "head/transform=plif_frozen")["head"]
    assert plif.parameters - plif.trainable == 100_000  # its slopes


def test_of_other_modules_flops_are_not_known():
    found = sizes("experiment=dialogue_softmax")
    assert found["total"].parameters > 0
    assert found["total"][3:] == (None, None)


@pytest.mark.parametrize(("threads", "busy"), [(1, 1), (2, 2), (64, 3)])
def test_only_threads_that_have_a_core_of_this_process_count(threads, busy, monkeypatch):
    monkeypatch.setattr(model_size, "_TIMED_S", 0.0)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 2})
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("time.process_time", itertools.count().__next__)
    assert model_size.flops_per_second(threads, on_gpu=False) == busy * 2 * 1024**3
