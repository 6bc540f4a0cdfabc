"""The command on a finished run: what it writes, reuses and refuses."""

from functools import cache

import pytest
import torch

from lmkit.analyses.base import Analysis
from lmkit.analyses.measuring import measure_runs
from lmkit.cli.entry import compose, plain_config
from lmkit.errors.user_error import UserError
from lmkit.experiment.make import make
from lmkit.runs.checksums import parse_json
from lmkit.runs.folder import RunFolder
from lmkit.training.checkpoint_files import write_tensors

DYNAMIC = ("method=dynamic", "method.batch_size=20", "method.lr_grid=[0.0,1e-3]")
DYNAMIC += ("method.decay_grid=[0.0,0.01]",)
composed = cache(compose)


def evaluated(folder: RunFolder, *overrides: str) -> dict:
    """Measures it as the command does, and reads what was written."""
    options = plain_config(composed("analyses/evaluate", ("run=one", *overrides)))
    del options["run"]
    data_root, threads = options.pop("data_root"), options.pop("threads")
    del options["changed_code"]
    analysis = make(options, "", Analysis)
    found, left_out = measure_runs(analysis, [folder], data_root=data_root, threads=threads)
    for reason in left_out.values():
        raise UserError(reason)
    kind = options["method"]["_target_"].rpartition(".")[2].lower()
    last = "_last" if options["checkpoint"] == "last" else ""
    file = folder.analysis / f"evaluate_{kind}_{options['split']}{last}.json"
    content = parse_json(file.read_bytes())
    assert (content["kind"], content["method"]) == ("evaluate", kind)
    ((_, one),) = found
    assert content.items() >= one.record.model_dump().items()
    return content


def test_static_is_the_result_of_training(toy_copy):
    result = toy_copy.read_result().metrics
    found = evaluated(toy_copy)
    assert found["ppl"] == result["test_ppl"]
    assert (found["num_tokens"], found["averaged"]) == (299, True)
    assert evaluated(toy_copy, "split=valid")["ppl"] == pytest.approx(result["valid_ppl"], rel=1e-6)
    assert found["measured_on"]["sha256"] == toy_copy.read_result().provenance["data_sha256"]
    evaluated(toy_copy, "checkpoint=last")


def test_without_weight_or_steps_both_are_static(toy_copy):
    static = evaluated(toy_copy)["ppl"]
    assert evaluated(toy_copy, "method=cache", "method.weight=0")["ppl"] == pytest.approx(static)
    off = evaluated(toy_copy, *DYNAMIC, "method.lr=0", "method.decay=0")
    assert off["ppl"] == pytest.approx(static)
    assert evaluated(toy_copy, *DYNAMIC, "method.lr=1e-3")["ppl"] != pytest.approx(static, rel=1e-4)


@pytest.mark.parametrize(
    "arguments",
    [
        ("method=cache", "method.window_grid=[50]", "method.theta_grid=[0.5,1]"),
        DYNAMIC,
    ],
)
def test_a_search_takes_the_best_point_on_valid(toy_copy, arguments):
    found = evaluated(toy_copy, *arguments, "search=true", "search_tokens=120")
    points = found["search_points"]
    assert found["search_tokens"] == 120
    ppls = [point.pop("ppl") for point in points]
    assert len(set(map(str, points))) == len(ppls) >= 4
    assert ppls == sorted(ppls)
    assert ppls[0] < ppls[-1]
    assert points[0].items() <= found["options"].items()
    # the values that were found, given by hand
    values = [f"method.{name}={value}" for name, value in points[0].items()]
    again = evaluated(toy_copy, *arguments, *values)
    assert again["ppl"] == found["ppl"]
    assert again["search_tokens"] is None


def test_a_search_over_all_of_valid_ends_with_what_valid_itself_gives(toy_copy):
    found = evaluated(toy_copy, *DYNAMIC, "search=true", "split=valid")
    assert found["search_tokens"] == found["num_tokens"] == 399
    assert found["ppl"] == pytest.approx(found["search_points"][0]["ppl"], rel=1e-12)


@pytest.mark.slow
def test_statistics_are_kept_and_mended(toy_copy):
    first = evaluated(toy_copy, *DYNAMIC)["ppl"]
    (file,) = toy_copy.analysis.glob("gradients_*.pt")
    written = file.stat().st_mtime_ns
    assert evaluated(toy_copy, *DYNAMIC)["ppl"] == first
    assert file.stat().st_mtime_ns == written
    content = torch.load(file, weights_only=True)
    for broken in (b"no checkpoint", file.read_bytes()[:100]):
        file.write_bytes(broken)
        assert evaluated(toy_copy, *DYNAMIC)["ppl"] == first
        assert torch.load(file, weights_only=True)["key"] == content["key"]
    write_tensors(file, content | {"key": "another"})
    assert evaluated(toy_copy, *DYNAMIC)["ppl"] == first
    evaluated(toy_copy, *DYNAMIC, "method.batch_size=30")
    assert len(list(toy_copy.analysis.glob("gradients_*.pt"))) == 2


def test_what_is_more_than_there_is_gets_refused(toy_copy):
    with pytest.raises(UserError, match="search_tokens=400 is more than the 399 predicted tokens"):
        evaluated(toy_copy, "method=cache", "search=true", "search_tokens=400")
    with pytest.raises(UserError, match=r"too short for 5000 columns; choose a smaller method\."):
        evaluated(toy_copy, "method=dynamic", "method.batch_size=5000")
