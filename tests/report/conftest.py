"""Run folders made by hand: what a report reads of them, and nothing trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

from lmkit.runs.identity import identity
from lmkit.runs.names import RunNames

MIXTURES = {
    "none": {"_target_": "lmkit.heads.mixtures.SingleContext"},
    "softmaxes": {
        "_target_": "lmkit.heads.mixtures.MixtureOfSoftmaxes",
        "num_experts": 15,
        "latent_dropout": 0.29,
    },
}
TRANSFORMS = {
    "identity": {"_target_": "lmkit.heads.transforms.Identity"},
    "gss": {"_target_": "lmkit.heads.transforms.GeneralizedSigSoftmax", "c": -1.5, "k": 2.5},
    "plif": {
        "_target_": "lmkit.heads.transforms.PiecewiseLinear",
        "knots": 100000,
        "limit": 20.0,
        "frozen": False,
    },
    "outside": {"_target_": "heads.Cube", "start": 0.01},
}
TRIGGERS = {
    "et": {"_target_": "lmkit.training.triggers.AtEpoch", "epoch": 200},
    "nt": {"_target_": "lmkit.training.triggers.NonMonotone", "n": 5},
}
THRESHOLDS = [10.0 ** (-step / 10) for step in range(80, -1, -1)]

MakeRun = Callable[..., Path]


def spectrum_measures(contexts: int, words: int, rank: int) -> dict[str, object]:
    return {
        "num_contexts": contexts,
        "num_columns": words,
        "resolution": 5e-8,
        "press_tolerance": 1e-5,
        "press_rank": rank,
        "effective_rank": {"0.001": 52, "0.0001": 201, "1e-05": 306},
        "stable_rank": 1.5,
        "entropy_rank": 12.0,
        "thresholds": THRESHOLDS,
        "cumulative_shares": np.linspace(0, 1, 81).tolist(),
        "unresolved": {},
    }


@pytest.fixture(scope="session")
def make_run() -> MakeRun:
    """Writes a finished run into a folder of runs; what is not said is as for softmax on PTB."""

    def make(
        root: Path,
        seed: int = 1,
        ppl: float = 57.0,
        rank: int = 402,
        mixture: str = "none",
        transform: str = "identity",
        trigger: str = "et",
        contexts: int = 10000,
        sizes: tuple[int, int] = (10000, 82429),
        changes: dict[str, object] | None = None,
        with_files: bool = True,
        max_epochs: int = 3,
    ) -> Path:
        head = {"mixture": dict(MIXTURES[mixture]), "transform": dict(TRANSFORMS[transform])}
        for option, value in (changes or {}).items():
            part, name = option.split(".")
            head[part][name] = value
        config = {
            "name": "penn_small",
            "data": {"name": "penn", "train_tokens": None},
            "trunk": {"emb_dim": 400, "_target_": "lmkit.trunk.awd_lstm.AWDLSTM"},
            "head": {"chunk_mb": 32, **head},
            "objective": {"ar_weight": 2.0},
            "optimizer": {"lr": 20.0},
            "trigger": TRIGGERS[trigger],
            "windows": {"batch_size": 20},
            "seed": seed,
            "threads": 1,
            "trainer": {"precision": "32-true", "deterministic": False},
        }
        found = identity(config, f"data of {sizes}", "cpu")
        folder = root / f"penn_small-{found.digest}"
        for name in ("analysis", "spectra"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        names = RunNames("Softmax", "softmax", (0, 0, 0), "AWD-LSTM", "ET 200", "toy", "toy")
        content = {"digest": found.digest, "settings": found.settings, "names": names._asdict()}
        (folder / "identity.json").write_text(json.dumps({"schema_version": 2, **content}))
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        measures = spectrum_measures(contexts, sizes[0], rank)
        metrics = {
            "train_ppl": ppl - 20,
            "valid_ppl": ppl + 2,
            "test_ppl": ppl,
            "test_tokens": sizes[1],
            "best_epoch": 2,
            "switched_after": 1,
            "test_spectrum": measures,
        }
        result = {
            "schema_version": 1,
            "experiment": "penn_small",
            "identity": found.digest,
            "metrics": metrics,
            "cost": {"seconds_per_epoch": 55.0 + seed, "parameters": 24221600},
            "provenance": {"git": {"commit": "abc", "dirty": False}, "threads": 1},
            "budget": {
                "max_epochs": max_epochs,
                "patience": None,
                "epochs": 3,
                "stopped": "max_epochs",
            },
        }
        (folder / "result.json").write_text(json.dumps(result))
        if with_files:
            values = np.geomspace(100.0, 1e-7, 400)
            np.savez(
                folder / "spectra" / "test_log_probs.npz",
                format_version=np.int64(1),
                singular_values=values,
                measures=np.array(json.dumps(measures)),
            )
            lines = ["step,epoch,train/ppl,valid/ppl,valid/ppl_raw,averaging"]
            for epoch in (1, 2, 3):
                lines.append(f"{10 * epoch},{epoch},{ppl / epoch},{ppl + 2},{ppl + 3},0.0")
            (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
        return folder

    return make


def _write(run: Path, kind: str, **content: object) -> None:
    whole = {"schema_version": 1, "kind": kind, "checkpoint": "best", "averaged": True, **content}
    (run / "analysis" / f"{kind}.json").write_text(json.dumps(whole))


@pytest.fixture(scope="session")
def add_analyses() -> Callable[[Path], None]:
    """Writes every kind of analysis into a run's folder."""

    def add(run: Path, shift: float = 0.0) -> None:
        top = [{"word": f"w{i}", "prob": 0.5 / (i + 1)} for i in range(5)]
        context = {
            "name": "p0",
            "source": "published",
            "position": 7,
            "context": "a <unk> & b",
            "target": "w1",
            "target_prob": 0.25,
            "target_rank": 2 if shift == 0 else 9,
            "top": top,
        }
        hits = {"positions": [1, 2, 3, 4], "top1": [1, 0, 0, 0], "top5": [1, 1, 0, 1]}
        margin = {**context, "name": "margin 9", "source": "margin", "other_prob": 0.001,
                  "margin_nats": 5.5}  # fmt: skip
        against = {"run": "penn_small-0", "better": [margin], "worse": []}
        _write(run, "predictions", split="test", contexts=[context], hits=hits, against=against)
        sets = {
            name: {"spearman": 0.4 + shift, "pairs": 237, "skipped": 116}
            for name in ("WS-353", "RG-65")
        }
        components = {"0.75": 100, "0.95": 250}
        _write(
            run, "embeddings", emb_dim=400, word_similarity=sets, principal_components=components
        )
        logits = np.linspace(-5, 5, 11).tolist()
        _write(
            run,
            "logits",
            split="test",
            num_contexts=10,
            transform="x",
            histogram={"edges": [-5.0, 0.0, 5.0], "density": [0.1, 0.1]},
            curve={"logit": logits, "transformed": [2 * z + shift for z in logits]},
        )
        _write(run, "samples", temperature=1.0, top_k=None, seed=1, texts=["<b>once</b> upon"])
        scores = {f"bleu{n}_{kind}": 0.1 * n + shift for n in range(1, 5)
                  for kind in ("precision", "recall")}  # fmt: skip
        scores |= {"perplexity": 30.0 + shift, "distinct1": 0.01, "distinct2": 0.1}
        answer = {"context": ["> hello", "hi"], "reference": ["how", "are", "you"]}
        answer |= {"responses": [["fine"], ["well"]], "log_probs": [-1.0, -2.0]}
        _write(run, "dialogue", options={"n_best": 2}, answered_pairs=7, response_words=1.0,
               responses=[answer], **scores)  # fmt: skip
        noise = [
            {"c": c, "press_rank": r, "predicted_rank": r, "effective_rank": {"0.001": 7}}
            for c, r in ((1e-20, 9899), (1e-25, 10))
        ]
        size = {"true_rank": 10, "num_contexts": 10000, "num_words": 10000}
        _write(run, "press_robustness", noise=noise, **size)
        _write(
            run,
            "gradient_bottleneck",
            decoder_rank=400,
            num_contexts=100,
            share=0.05,
            mean_share=0.06,
            isotropic_share=0.04,
        )
        _write(run, "rank_test_log_probs_82429", spectrum=spectrum_measures(82429, 10000, 410))
        _write(run, "divergence_test_82429", split="test", num_contexts=82429, exact=4.9)

    return add


@pytest.fixture(scope="session")
def study_folder(tmp_path_factory, make_run, add_analyses) -> Path:
    """Runs that cover every section: heads over seeds, a grid, triggers, mixtures, a new head."""
    root = tmp_path_factory.mktemp("runs")
    for seed in (1, 2, 3):
        softmax = make_run(root, seed, 57.0 + 0.05 * seed)
        gss = make_run(root, seed, 56.9 + 0.05 * seed, 8904 + seed, transform="gss")
        mos = make_run(root, seed, 54.9 + 0.05 * seed, 9981, mixture="softmaxes")
    for shift, run in enumerate((softmax, gss, mos)):
        add_analyses(run, 0.1 * shift)
    for i, c in enumerate((-2.0, -1.5, 0.0)):
        for j, k in enumerate((1.5, 2.0)):
            changes = {"transform.c": c, "transform.k": k}
            make_run(root, 1, 57 + 0.3 * i - 0.1 * j, 5000 + 900 * i + 350 * j, transform="gss",
                     changes=changes)  # fmt: skip
    make_run(root, 1, 58.0, trigger="nt")
    for experts, ppl, rank in ((5, 58.4, 8057), (15, 56.1, 9979)):
        make_run(root, 1, ppl, rank, "softmaxes", trigger="nt",
                 changes={"mixture.num_experts": experts})  # fmt: skip
    make_run(root, 1, 55.0, 9990, "softmaxes", changes={"mixture.latent_dropout": 0.0})
    make_run(root, 1, 56.0, 7000, transform="outside")
    return root
