"""The command on a finished run: what it writes, reuses and refuses."""

from collections.abc import Callable

import pytest
import torch

from lmkit.data.windows import EvalWindows
from lmkit.evaluation import dynamic
from lmkit.evaluation.dynamic import gradient_statistics
from lmkit.experiment.load import load_run
from lmkit.runs.checksums import parse_json
from lmkit.training.checkpoint_files import load_checkpoint, write_tensors

DYNAMIC = ("method=dynamic", "method.batch_size=20", "method.lr_grid=[0.0,1e-3]")
DYNAMIC += ("method.decay_grid=[0.0,0.01]",)


@pytest.fixture
def evaluated(toy_copy, lmkit) -> Callable[..., dict]:
    """Measures a run by the command; returns what was written."""

    def measure(*overrides: str) -> dict:
        lmkit("evaluate", f"run={toy_copy.path}", *overrides)
        chosen = {"method": "static", "split": "test"} | dict(o.split("=") for o in overrides)
        name = f"evaluate_{chosen['method']}_{chosen['split']}" + "_last" * ("checkpoint" in chosen)
        content = parse_json((toy_copy.analysis / f"{name}.json").read_bytes())
        assert (content["kind"], content["method"]) == ("evaluate", chosen["method"])
        return content

    return measure


def test_static_is_the_result_of_training(toy_copy, evaluated):
    result = toy_copy.read_result().metrics
    found = evaluated()
    assert found["ppl"] == result["test_ppl"]
    assert (found["num_tokens"], found["averaged"]) == (299, True)
    assert evaluated("split=valid")["ppl"] == pytest.approx(result["valid_ppl"], rel=1e-6)
    assert found["measured_on"]["sha256"] == toy_copy.read_result().provenance["data_sha256"]
    evaluated("checkpoint=last")


def test_a_text_that_is_edited_while_it_is_predicted_is_not_counted_in(
    toy_copy, refused, monkeypatch
):
    fingerprints = iter(["of the text", "of another"])
    monkeypatch.setattr("lmkit.data.toy.ToyLanguage.fingerprint", lambda self: next(fingerprints))
    message = refused("evaluate", f"run={toy_copy.path}")
    assert "the text was edited while it was predicted: measure it again" in message
    assert not list(toy_copy.analysis.glob("evaluate*"))


def test_without_weight_or_steps_both_are_static(evaluated):
    static = evaluated()["ppl"]
    assert evaluated("method=cache", "method.weight=0")["ppl"] == pytest.approx(static)
    off = evaluated(*DYNAMIC, "method.lr=0", "method.decay=0")
    assert off["ppl"] == pytest.approx(static)
    assert evaluated(*DYNAMIC, "method.lr=1e-3")["ppl"] != pytest.approx(static, rel=1e-4)


@pytest.mark.parametrize(
    "arguments", [("method=cache", "method.window_grid=[50]", "method.theta_grid=[0.5,1]"), DYNAMIC]
)
def test_a_search_takes_the_best_point_on_valid(evaluated, arguments):
    found = evaluated(*arguments, "search=true", "search_tokens=120")
    points = found["search_points"]
    assert found["search_tokens"] == 120
    ppls = [point.pop("ppl") for point in points]
    assert len(set(map(str, points))) == len(ppls) >= 4
    assert ppls == sorted(ppls)
    assert ppls[0] < ppls[-1]
    assert points[0].items() <= found["options"].items()
    # the values that were found, given by hand
    values = [f"method.{name}={value}" for name, value in points[0].items()]
    again = evaluated(*arguments, *values)
    assert again["ppl"] == found["ppl"]
    assert again["search_tokens"] is None


def test_a_search_over_all_of_valid_ends_with_what_valid_itself_gives(evaluated):
    found = evaluated(*DYNAMIC, "search=true", "split=valid")
    assert found["search_tokens"] == found["num_tokens"] == 399
    assert found["ppl"] == pytest.approx(found["search_points"][0]["ppl"], rel=1e-12)


@pytest.mark.slow
def test_statistics_are_kept_and_mended(toy_copy, evaluated):
    first = evaluated(*DYNAMIC)["ppl"]
    (file,) = toy_copy.analysis.glob("gradients_*.pt")
    written = file.stat().st_mtime_ns
    assert evaluated(*DYNAMIC)["ppl"] == first
    assert file.stat().st_mtime_ns == written
    content = torch.load(file, weights_only=True)
    for broken in (b"no checkpoint", file.read_bytes()[:100]):
        file.write_bytes(broken)
        assert evaluated(*DYNAMIC)["ppl"] == first
        assert torch.load(file, weights_only=True)["key"] == content["key"]
    write_tensors(file, content | {"key": "another"})
    assert evaluated(*DYNAMIC)["ppl"] == first
    evaluated(*DYNAMIC, "method.batch_size=30")
    assert len(list(toy_copy.analysis.glob("gradients_*.pt"))) == 2


def test_what_is_more_than_there_is_gets_refused(toy_copy, refused):
    line = ("evaluate", f"run={toy_copy.path}")
    error = refused(*line, "method=cache", "search=true", "search_tokens=400")
    assert "search_tokens=400 is more than the 399 predicted tokens" in error
    error = refused(*line, "method=dynamic", "method.batch_size=5000")
    assert "too short for 5000 columns; choose a smaller method." in error


def test_statistics_are_of_training_and_both_conventions_mean_the_same(toy_copy, evaluated):
    rates = {"lr": 0.01, "decay": 0.02, "epsilon": 0.001}
    typed = [f"method.{name}={value}" for name, value in rates.items()]
    code = evaluated(*DYNAMIC, "method.convention=code", *typed)["ppl"]
    (file,) = toy_copy.analysis.glob("gradients_*.pt")
    run, kept = load_run(toy_copy.path, "best", None, None), torch.load(file, weights_only=True)
    found = gradient_statistics(run.model, EvalWindows(run.data.corpus.columns("train", 20), 5))
    for name, rms in found.rms.items():
        torch.testing.assert_close(kept["rms"][name], rms)
    root = found.num_batches**0.5
    by = {"lr": root, "decay": len(found.rms), "epsilon": root}
    paper = [f"method.{name}={value / by[name]!r}" for name, value in rates.items()]
    assert evaluated(*DYNAMIC, *paper)["ppl"] == pytest.approx(code, rel=1e-6)


def test_other_weights_and_windows_have_statistics_of_their_own(toy_copy, evaluated):
    content = load_checkpoint(toy_copy.last)
    content["callbacks"]["AsgdSwitch"]["averages"]["head.decoder_bias"][0] += 1
    write_tensors(toy_copy.last, content)
    for more in ((), ("checkpoint=last",), ("method.length=7",)):
        evaluated(*DYNAMIC, *more)
    assert len(list(toy_copy.analysis.glob("gradients_*.pt"))) == 3


def test_a_point_that_diverges_early_leaves_the_next_the_whole_text(evaluated, monkeypatch):
    monkeypatch.setattr(dynamic, "_CHECKED", 1)
    grids = ("method.lr_grid=[1e30,0.0]", "method.decay_grid=[0.0]")
    found = evaluated(*DYNAMIC[:2], *grids, "split=valid", "search=true")
    assert [each["ppl"] for each in found["search_points"]] == pytest.approx([found["ppl"]])
