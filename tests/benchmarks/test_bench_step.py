"""The benchmark's harness at a tiny size: every head, a table, counted FLOP; no extra imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils.flop_counter import FlopCounterMode

SCRIPT = Path(__file__).with_name("bench_step.py")
HEADS = ["softmax", "ss", "gss", "lms_plif", "mos"]


@pytest.fixture
def cases(monkeypatch):
    """The module bench_cases.py, imported as its script does."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import bench_cases

    return bench_cases


@pytest.mark.slow
def test_a_piece_is_measured_and_joins_the_table(tmp_path):
    options = ["--size", "tiny", "--threads", "1", "--steps", "2", "--warmup", "1"]
    options += ["--heads", "mos", "--precision", "bf16-mixed", "--folder", str(tmp_path)]
    command = [sys.executable, str(SCRIPT), *options]
    other = tmp_path / "tiny-cpu-gss-b3-32-true.json"
    subprocess.run(command, check=True, capture_output=True)
    piece = json.loads((tmp_path / "tiny-cpu-mos-b3-bf16-mixed.json").read_text())
    assert piece["tokens"] == 15
    for implementation in ("plain", "lmkit"):
        measured = piece[implementation]
        assert 0 < measured["fastest"] <= measured["seconds"] < 60
        assert measured["peak_mb"] > 10
        assert measured["matmul_gflops"] > 0
    other.write_text(json.dumps({**piece, "head": "gss", "precision": "32-true"}))
    done = subprocess.run([*command, "--table"], check=True, capture_output=True, text=True)
    assert "mos (batch 3)" in done.stdout
    assert "gss (batch 3)" in done.stdout
    assert (tmp_path / "tiny-cpu.md").read_text().count("\n") == 4


@pytest.mark.parametrize("head", HEADS)
def test_every_head_steps(cases, head):
    case = cases.case_of("tiny", head)
    pairs = [("plain", "32-true"), ("lmkit", "32-true"), ("lmkit", "bf16-mixed")]
    for implementation, precision in pairs:
        step = cases.STEPS[implementation](case, head, "cpu", precision)
        step()
        step()


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("head", ["mixtape"])
def test_a_head_without_a_plain_counterpart_steps(cases, head, precision):
    assert head in cases.WITHOUT_PLAIN
    step = cases.STEPS["lmkit"](cases.case_of("tiny", head), head, "cpu", precision)
    step()
    step()


def test_later_heads_have_the_flop_of_their_products(cases):
    mos = cases.case_of("penn", "mos")
    mixtape = cases.case_of("penn", "mixtape")
    assert mixtape.step_flop < mos._replace(num_experts=4).step_flop


@pytest.mark.parametrize("head", ["softmax", "mos"])
def test_the_roofline_counts_the_flop_that_torch_counts(cases, head):
    case = cases.case_of("tiny", head)._replace(num_words=500)
    model = cases.plain_model(case, head)
    words_TB, targets_TB = cases.windows(case, "cpu")
    output, _, _ = model.trunk(words_TB, model.initial_state(case.batch))
    output = output.detach().requires_grad_()
    with FlopCounterMode(display=False) as counter:
        log_probs = model.log_prob(output)
        log_probs.gather(1, targets_TB.view(-1, 1)).sum().backward()
    lstm = sum(4 * out * (given + out) for given, out in case.layer_dims)
    head_flop = case.step_flop - 3 * 2 * case.tokens * lstm
    assert counter.get_total_flops() == head_flop


def test_neither_hydra_nor_wandb_is_imported():
    code = (
        f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import bench_step; "
        "heavy = {'hydra', 'wandb', 'omegaconf'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
