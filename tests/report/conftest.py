"""Run folders made by hand, with all that a report reads of them, and nothing trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import hydra
import numpy as np
import pytest

from lmkit.analyses.analysis import Analysis
from lmkit.analyses.finding import find_analyses
from lmkit.cli.entry import CONFIGS
from lmkit.runs.checksums import checked_json


def _write(run: Path, stem: str, version: int = 1, **content: object) -> None:
    about = {"schema_version": version, "kind": stem, "checkpoint": "best", "averaged": True}
    (run / "analysis" / f"{stem}.json").write_bytes(checked_json(about | content))


@pytest.fixture(scope="session")
def analyses() -> list[type[Analysis]]:
    """All that are in conf/analyses/."""
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        found = find_analyses()
    assert found.left_out == []
    return found.classes


@pytest.fixture(scope="session")
def add_analyses(spectrum_measures) -> Callable[[Path], None]:
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
        compared = {"run": "penn_small-0", "better": [margin], "worse": []}
        _write(run, "predictions", split="test", contexts=[context], hits=hits,
               compared_with=compared)  # fmt: skip
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
        rank = 802 if shift else None  # of some changes it is not resolved
        _write(
            run,
            "gradient_bottleneck",
            version=2,
            decoder_rank=400,
            split="test",
            num_contexts=100,
            share=0.05 + shift / 10,
            mean_share=0.06,
            isotropic_share=0.04,
            update_rank=rank,
            update_bound=802,
            update_cosine=0.125,
        )
        measures = spectrum_measures(82429, 10000, 410)
        _write(run, "rank_test_log_probs_82429", kind="rank", spectrum=measures)
        _write(run, "divergence_test_82429", kind="divergence", split="test",
               num_contexts=82429, all_contexts=82429, exact=4.9)  # fmt: skip

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
