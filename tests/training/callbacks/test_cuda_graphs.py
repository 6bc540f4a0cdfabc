"""Steps that are recorded once a shape and replayed train the same model as steps that are not."""

from collections.abc import Callable

import pytest
import pytorch_lightning as pl
import torch
from torch import nn

from lmkit.errors.user_error import UserError
from lmkit.training.callbacks.cuda_graphs import CudaGraphs, RecordedStep
from lmkit.training.head_module import HeadModule
from lmkit.training.triggers import AtEpoch


class Recorder:
    """As `cuda_recorder`: runs what it is given twice before it returns what repeats it."""

    def __init__(self) -> None:
        self.recorded = 0

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        self.recorded += 1
        run()
        run()
        return run


class Recorded(pl.Callback):
    """What `CudaGraphs` does, on a CPU."""

    def __init__(self) -> None:
        self.recorder, self.lengths = Recorder(), set()

    def on_train_start(self, trainer, pl_module) -> None:
        parameters = [p for p in pl_module.parameters() if p.requires_grad]
        pl_module.replayed_step = RecordedStep(pl_module.step, parameters, self.recorder)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx) -> None:
        self.lengths.add(len(batch.inputs_TB))


def test_a_run_that_goes_on_is_the_same_bit_for_bit_and_each_length_recorded_once(fit):
    callbacks = Recorded(), Recorded()
    first = fit(AtEpoch(1), 2, callbacks[0])
    last = fit(AtEpoch(1), 3, callbacks[1], resume=first.checkpoint)
    expected = fit(AtEpoch(1), 3).records
    for each in callbacks:
        assert each.recorder.recorded == len(each.lengths) > 2
    found = first.records.weights + last.records.weights
    for after, without in zip(found, expected.weights, strict=True):
        assert all(torch.equal(after[name], without[name]) for name in without)
    assert first.records.reports + last.records.reports == expected.reports


@pytest.fixture
def toy() -> tuple[nn.Linear, nn.Parameter, RecordedStep]:
    torch.manual_seed(2)
    linear, unused = nn.Linear(3, 2), nn.Parameter(torch.ones(4))

    def step(x, factor):
        y = linear(x) * factor
        return y.square().sum(), y.detach()

    return linear, unused, RecordedStep(step, [*linear.parameters(), unused], Recorder())


def test_gradients_are_those_of_the_loss_and_follow_weights_and_inputs(toy):
    linear, unused, recorded = toy
    for rows in (2, 5, 2):
        x, factor = torch.randn(rows, 3), torch.randn(())
        loss, y = recorded(x, factor)
        (3 * loss).backward()
        expected = linear(x) * factor
        torch.testing.assert_close(y, expected.detach())
        torch.testing.assert_close(loss.detach(), expected.detach().square().sum())
        grads = torch.autograd.grad(3 * expected.square().sum(), list(linear.parameters()))
        for parameter, grad in zip(linear.parameters(), grads, strict=True):
            torch.testing.assert_close(parameter.grad, grad)
        assert unused.grad is None
        with torch.no_grad():
            for parameter in linear.parameters():
                parameter.sub_(0.1 * parameter.grad)
        linear.zero_grad()
    assert len(recorded.recordings) == 2


def test_other_tensors_in_the_place_of_parameters_are_refused():
    weight = nn.Parameter(torch.ones(3))
    step = RecordedStep(lambda x: ((weight * x).sum(),), [weight], Recorder())
    x = torch.ones(3)
    for _ in range(2):
        assert float(step(x)[0]) == 3
    weight.data = 5 * weight.data
    with pytest.raises(UserError, match="replaced the tensors of the weights"):
        step(x)


def test_recording_leaves_buffers_as_they_are():
    norm = nn.BatchNorm1d(3)
    recorded = RecordedStep(
        lambda x: (norm(x).square().sum(),), [*norm.parameters()], Recorder(), [*norm.buffers()]
    )
    expected = nn.BatchNorm1d(3)
    for rows in (4, 4, 6):
        x = torch.randn(rows, 3)
        recorded(x)
        expected(x)
    for name, buffer in expected.named_buffers():
        assert torch.equal(norm.get_buffer(name), buffer)


def test_a_run_that_ends_with_an_error_keeps_no_graphs(fit):
    class Fails(CudaGraphs, Recorded):
        def on_train_batch_end(self, trainer, pl_module, *_) -> None:
            self.module = pl_module
            assert pl_module.replayed_step is not None
            raise RuntimeError("out of patience")

        on_train_start = Recorded.on_train_start

    callback = Fails()
    with pytest.raises(RuntimeError, match="out of patience"):
        fit(AtEpoch(1), 1, callback)
    assert callback.module.replayed_step is None


def test_gradients_are_kept_when_others_come(toy):
    linear, _, recorded = toy
    recorded(torch.randn(2, 3), torch.ones(()))[0].backward()
    first = linear.weight.grad
    kept = first.clone()
    recorded(torch.randn(2, 3), torch.ones(()))
    assert torch.equal(first, kept)


def test_recording_draws_no_random_numbers():
    weight = nn.Parameter(torch.ones(3))
    recorded = RecordedStep(lambda x: ((weight * torch.rand(3) * x).sum(),), [weight], Recorder())
    torch.manual_seed(7)
    found = [float(recorded(torch.ones(()))[0]) for _ in range(3)]
    torch.manual_seed(7)
    assert found == [float(torch.rand(3).sum()) for _ in range(3)]


def test_autocast_goes_along_and_casts_of_weights_do_not_stay():
    linear = nn.Linear(3, 2)
    recorded = RecordedStep(
        lambda x: (linear(x).float().sum(), linear(x).detach()), [*linear.parameters()], Recorder()
    )
    x = torch.randn(2, 3)
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            y = recorded(x)[1]
            expected = linear(x)
        assert y.dtype == torch.bfloat16
        assert torch.equal(y, expected)
        with torch.no_grad():
            linear.weight.mul_(2)


def test_a_module_of_another_kind_is_refused_by_name():
    class Other(HeadModule):
        def __init__(self) -> None:
            nn.Module.__init__(self)

    with pytest.raises(UserError, match=r"callbacks\.cuda_graphs needs module.*Other"):
        CudaGraphs().check(Other())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_a_run_by_graphs_is_as_one_without(fit):
    found = fit(AtEpoch(1), 3, CudaGraphs(), accelerator="gpu")
    expected = fit(AtEpoch(1), 3, accelerator="gpu")
    for after, without in zip(found.records.weights, expected.records.weights, strict=True):
        for name in without:  # atomic sums on a GPU differ in their order
            torch.testing.assert_close(after[name], without[name], rtol=1e-8, atol=1e-10)
