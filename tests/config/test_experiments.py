"""Every YAML composes, and every experiment is the published configuration that it says it is."""

import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from lmkit.cli.entry import CONFIGS, compose
from lmkit.experiment.model_size import model_without_weights
from lmkit.heads.mixtures import MixtureOfContexts, MixtureOfSoftmaxes, SingleContext
from lmkit.heads.transforms import GeneralizedSigSoftmax, Identity, PiecewiseLinear, SigSoftmax
from lmkit.training.head_module import HeadModule
from tests.tiny import composed

CORPORA = {"penn": ("penn", 10_000), "wt2": ("wikitext-2", 33_278)}
EXPERIMENTS = sorted(path.stem for path in (CONFIGS / "experiment").glob("*.yaml"))
UNPUBLISHED = r"fixed|toy|small|study|subwords|transformer|_awd_lstm$|mixtape|_doc$|^dialogue"
PUBLISHED = [name for name in EXPERIMENTS if not re.search(UNPUBLISHED, name)]
# whose contexts they take, by trunk.of
NEEDS_TRUNK = ["fixed", "fixed_trunk", "of_trunk"]
NOT_OF_TRAIN = ("method", "analyses", "studies", "finetuning", "reproduce", "size")
NOT_OF_TRAIN += ("multirun_sweeps",)  # tests/sweeps composes their points
OF_OTHER_TESTS = [*PUBLISHED, *(name for name in EXPERIMENTS if name.startswith("dialogue_"))]
CHOICES = [
    f"{path.parent.relative_to(CONFIGS)}={path.stem}"
    for path in sorted(CONFIGS.glob("*/**/*.yaml"))
    if path.parent.name not in NOT_OF_TRAIN and path.stem not in OF_OTHER_TESTS
]
PRIMARY = sorted(
    str(path.relative_to(CONFIGS).with_suffix(""))
    for pattern in ("*.yaml", "analyses/*.yaml", "studies/*.yaml")
    for path in CONFIGS.glob(pattern)
    if path.stem not in ("default_launcher", "quiet")  # parts of the others, with no options
)

# Trainable parameters in millions, truncated to two decimals (Parthiban et al. 2021, tables 2 and
# 5; supplement, tables 4 and 5). Ours where nothing is printed: the two with 10^6 knots.
SIZES = {
    "penn": {"softmax": "24.22", "lms_plif": "24.32", "mos": "21.50", "mos_plif": "22.50"},
    "wt2": {"softmax": "33.55", "lms_plif": "33.65", "mos": "34.90", "mos_plif": "35.90"},
}
OTHER_SIZES = {
    "penn_mos_dagger": "17.53",
    "penn_softmax_dagger": "16.35",
    "penn_softmax_ddagger": "17.56",
    "penn_awd_lstm_mos_hyperparameters": "16.35",
    "wt2_awd_lstm_mos_hyperparameters": "29.02",  # printed nowhere
}
SAME_SIZE = {"ss": "softmax", "gss": "softmax", "lms_plif_frozen": "softmax", "moc": "mos"}
# mixture, transform, and whether the transform is trained
HEADS = {
    "softmax": (SingleContext, Identity, False),
    "ss": (SingleContext, SigSoftmax, False),
    "gss": (SingleContext, GeneralizedSigSoftmax, False),
    "lms_plif": (SingleContext, PiecewiseLinear, True),
    "lms_plif_frozen": (SingleContext, PiecewiseLinear, False),
    "mos": (MixtureOfSoftmaxes, Identity, False),
    "moc": (MixtureOfContexts, Identity, False),
    "mos_plif": (MixtureOfSoftmaxes, PiecewiseLinear, True),
}


@cache
def built(*overrides: str) -> HeadModule:
    """The model of a published experiment, over as many words as its corpus has."""
    config = composed(*overrides)
    return model_without_weights(config, dict(CORPORA.values())[config["data"]["name"]])


def millions(model: HeadModule) -> str:
    """Trainable parameters, truncated to two decimals as the papers print them."""
    count = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return f"{count // 10_000 / 100:.2f}"


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_composes(choice):
    if choice.partition("=")[2] in NEEDS_TRUNK:
        assert compose("train", [choice])
    else:
        composed(choice)


@pytest.mark.parametrize("name", PRIMARY)
def test_every_command_composes(name):
    assert compose(name)


def test_there_are_as_many_published_experiments():
    assert len(PUBLISHED) == 33


@pytest.mark.parametrize("name", PUBLISHED)
def test_an_experiment_has_its_name_corpus_trigger_head_size_and_source(name):
    config = composed(f"experiment={name}")
    corpus, _, head = name.removesuffix("_nt").partition("_")
    assert config["name"] == name
    assert config["data"]["name"] == CORPORA[corpus][0]
    by_loss = name.endswith(("_nt", "_awd_lstm_mos_hyperparameters"))
    assert config["trigger"] == (
        {"_target_": "lmkit.training.triggers.NonMonotone", "n": 5}
        if by_loss
        else {"_target_": "lmkit.training.triggers.AtEpoch", "epoch": 200}
    )
    text = (CONFIGS / "experiment" / f"{name}.yaml").read_text()
    header = text.partition("defaults:")[0]
    assert "2018" in header or "2019" in header or "2021" in header
    model = built(f"experiment={name}")
    expected = OTHER_SIZES.get(name) or SIZES[corpus][SAME_SIZE.get(head, head)]
    assert millions(model) == expected
    if head in HEADS:
        mixture, transform, is_trained = HEADS[head]
        assert type(model.head.mixture) is mixture
        assert type(model.head.transform) is transform
        assert any(p.requires_grad for p in model.head.transform.parameters()) is is_trained


@pytest.mark.parametrize(
    ("experiment", "num_experts", "expected"),
    [
        ("penn_mos", 1, "19.05"),
        ("penn_mos", 20, "22.37"),
        ("penn_moc", 20, "22.37"),
        ("wt2_mos", 20, "35.88"),
    ],
)
def test_parameters_grow_with_num_experts_as_published(experiment, num_experts, expected):
    override = f"head.mixture.num_experts={num_experts}"
    assert millions(built(f"experiment={experiment}", override)) == expected


@pytest.fixture(scope="module")
def published(data_root: Path) -> dict:
    """The published hyperparameters, as a file beside the corpora has them."""
    path = data_root.parent / "reference" / "published_results.yaml"
    if not path.is_file():
        pytest.skip(f"no published results at {path}")
    return yaml.safe_load(path.read_text())["parthiban2021"]


def hyperparameters(config: dict) -> dict:
    """Under the names of the published file."""
    trunk, windows = config["trunk"], config["windows"]
    found = {key: value for key, value in trunk.items() if key != "_target_"}
    found |= {"batch_size": windows["batch_size"], "bptt": windows["bptt"]}
    found |= {"max_seq_len_delta": windows["max_length_delta"], "seed": config["seed"]}
    found |= {key: config["optimizer"][key] for key in ("lr", "weight_decay")}
    return found | {
        "clip": config["trainer"]["gradient_clip_val"],
        "ar": config["objective"]["ar_weight"],
        "tar": config["objective"]["tar_weight"],
    }


def expected_hyperparameters(name: str, published: dict) -> dict:
    tables = published["sm_hyperparameters"]
    corpus, _, head = name.partition("_")
    is_like_mos = head.startswith(("mos", "moc", "awd_lstm_mos")) or "dagger" in head
    kind = "mos_moc" if is_like_mos else "softmax_ss_gss_plif"
    expected = {"embedding_noise": 0.0} | tables["common"]
    expected |= tables[kind][CORPORA[corpus][0]]
    if "dagger" in head:
        sizes = published["table5_fair_comparison"][head]
        expected |= {key: sizes[key] for key in ("emb_dim", "hidden_dim", "out_dim")}
        expected |= {"batch_size": sizes["bsz"]} | tables.get(f"best_{head}", {})
    if head == "awd_lstm_mos_hyperparameters":
        expected |= {"out_dim": expected["emb_dim"]}
    return {key: float(value) for key, value in expected.items()}  # YAML reads 1e-6 as text


@pytest.mark.realdata
@pytest.mark.parametrize("name", PUBLISHED)
def test_hyperparameters_are_as_published(name, published):
    assert hyperparameters(composed(f"experiment={name}")) == expected_hyperparameters(
        name, published
    )


@pytest.mark.realdata
@pytest.mark.parametrize("corpus", CORPORA)
def test_heads_are_as_published(corpus, published):
    plif = published["sm_hyperparameters"]["plif"]
    for name, frozen in (("lms_plif", False), ("lms_plif_frozen", True), ("lms_plif_nt", False)):
        config = composed(f"experiment={corpus}_{name}")
        transform = config["head"]["transform"]
        assert (transform["knots"], transform["limit"]) == (plif["knots"], plif["T"])
        assert transform["frozen"] is frozen
        assert config["module"]["transform_lr"] == plif["lr"]
    chosen = published["gss"]["chosen"][CORPORA[corpus][0]]
    transform = composed(f"experiment={corpus}_gss")["head"]["transform"]
    assert {key: transform[key] for key in ("c", "k")} == chosen
    for name in ("mos", "moc", "mos_plif"):
        mixture = composed(f"experiment={corpus}_{name}")["head"]["mixture"]
        assert (mixture["num_experts"], mixture["latent_dropout"]) == (15, 0.29)
    assert composed(f"experiment={corpus}_mos_plif")["head"]["transform"]["knots"] == 10**6


@pytest.mark.parametrize("experiment", ["toy", "penn_softmax"])
def test_a_transformer_alone_brings_an_optimizer_that_suits_it(experiment):
    chosen = (f"experiment={experiment}", "trunk=transformer")
    config = composed(*chosen)
    assert config["optimizer"]["_target_"] == "lmkit.training.optimizer.AdamW"
    assert config["optimizer"]["lr"] == 0.001
    assert config["schedule"]["_target_"].endswith("WarmupCosine")
    assert config["trigger"]["_target_"].endswith("Never")
    own = composed(*chosen, "optimizer=sgd", "trigger=non_monotone")
    assert own["optimizer"]["_target_"] == "torch.optim.SGD"
    assert own["trigger"]["_target_"].endswith("NonMonotone")


def test_each_optimizer_has_a_learning_rate_of_its_own():
    chosen = "experiment=toy_transformer"
    assert composed(chosen)["optimizer"]["lr"] == 0.003
    assert composed(chosen, "optimizer=adam")["optimizer"]["lr"] == 0.003
    assert composed(chosen, "optimizer=sgd")["optimizer"]["lr"] == 10
    assert composed(chosen, "trunk=awd_lstm")["optimizer"]["lr"] == 10
