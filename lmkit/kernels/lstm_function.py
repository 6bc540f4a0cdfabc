"""One LSTM layer over a window on a CPU, whose backward pass batches all steps where it can.

Shapes: T window length, B batch, I input, H hidden.

Only the product with the hidden-to-hidden weight has to wait for the step before. The product with
the input, its gradient and the gradients of both weights are one large product each, and the gates'
derivatives are computed for all steps at once. tests/benchmarks/RESULTS.md compares it with
torch.lstm.

    i, f, g, o = sigmoid, sigmoid, tanh, sigmoid of (W_ih x_t + b_ih + W_hh h_{t-1} + b_hh)
    c_t = f c_{t-1} + i g        h_t = o tanh(c_t)
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lmkit.kernels.cpu_products import NarrowProduct, product

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
tanh_backward = torch.ops.aten.tanh_backward.grad_input


def lstm_layer(
    x_TBI: Tensor,
    h_BH: Tensor,
    c_BH: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor,
    bias_hh: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs (T, B, H) and the state h, c after the window, each (B, H).

    Weights (4H, I) and (4H, H) and biases (4H,) stack the gates i, f, g, o, as in `torch.lstm`,
    whose values these are up to the order of summation. Where autocast is on, matrix products take
    operands of its dtype; gates, states and outputs have the parameters' dtype.
    """
    dtype = weight_ih.dtype
    product_dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else dtype
    with torch.autocast("cpu", enabled=False):
        bias = bias_ih + bias_hh
        inputs = [x.to(dtype) for x in (x_TBI, h_BH, c_BH)]
        outputs: tuple[Tensor, Tensor, Tensor] = _LSTMFunction.apply(  # type: ignore[no-untyped-call]
            *inputs, weight_ih, weight_hh, bias, product_dtype
        )
    return outputs


class _LSTMFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x_TBI: Tensor,
        h_BH: Tensor,
        c_BH: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor,
        product_dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor, Tensor]:
        steps, batch, hidden = len(x_TBI), *h_BH.shape
        x = x_TBI.reshape(steps * batch, -1).to(product_dtype)
        weight_ih, weight_hh = weight_ih.to(product_dtype), weight_hh.to(product_dtype)
        if product_dtype == bias.dtype:
            gates = product(x, weight_ih.T, bias)
        else:
            gates = (x @ weight_ih.T).to(bias.dtype).add_(bias)
        gates = gates.view(steps, batch, 4 * hidden)
        h, c = (bias.new_empty(steps + 1, batch, hidden) for _ in "hc")
        h[0], c[0] = h_BH, c_BH
        tanh_c = torch.empty_like(h[1:])
        recurrent = NarrowProduct(weight_hh.T, batch)
        per_gate = zip(*(gate.unbind() for gate in torch.split(gates, hidden, dim=2)), strict=True)
        steps_of = zip(gates.unbind(), per_gate, h.unbind(), h[1:].unbind(), strict=False)
        for t, (all_gates, (i, f, g, o), h_before, h_after) in enumerate(steps_of):
            recurrent.add_to(all_gates, h_before)
            all_gates[:, : 2 * hidden].sigmoid_()
            g.tanh_()
            o.sigmoid_()
            torch.mul(f, c[t], out=c[t + 1]).addcmul_(i, g)
            torch.mul(o, torch.tanh(c[t + 1], out=tanh_c[t]), out=h_after)
        ctx.save_for_backward(x, weight_ih, weight_hh, gates, h, c, tanh_c)
        return h[1:], h[-1].clone(), c[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_TBH: Tensor, grad_h: Tensor, grad_c: Tensor
    ) -> tuple[Tensor | None, ...]:
        x, weight_ih, weight_hh, gates, h, c, tanh_c = ctx.saved_tensors
        steps, batch, hidden = tanh_c.shape
        grad_gates, through_h = _slopes(gates, c[:-1], tanh_c)
        by_c = grad_gates.view(steps, batch, 4, hidden)[:, :, :3].unbind()
        by_h = grad_gates[:, :, 3 * hidden :].unbind()
        grad_h, grad_c = grad_h + grad_TBH[-1], grad_c.clone()
        recurrent = NarrowProduct(weight_hh, batch)
        for t in reversed(range(steps)):
            grad_c.addcmul_(grad_h, through_h[t])
            by_c[t].mul_(grad_c.unsqueeze(1))
            by_h[t].mul_(grad_h)
            grad_c.mul_(gates[t, :, hidden : 2 * hidden])
            grad_h = grad_TBH[t - 1].clone() if t else torch.zeros_like(grad_h)
            recurrent.add_to(grad_h, grad_gates[t])
        rows = grad_gates.view(steps * batch, 4 * hidden)
        grad_bias = rows.sum(0)
        rows = rows.to(x.dtype)
        grad_x = product(rows, weight_ih).to(h.dtype).view(steps, batch, -1)
        grad_weight_ih = product(rows.T, x).to(h.dtype)
        h_before = h[:-1].reshape(-1, hidden).to(x.dtype)
        grad_weight_hh = product(rows.T, h_before).to(h.dtype)
        return grad_x, grad_h, grad_c, grad_weight_ih, grad_weight_hh, grad_bias, None


def _slopes(gates: Tensor, c_before: Tensor, tanh_c: Tensor) -> tuple[Tensor, Tensor]:
    """Derivatives at all steps: of c_t by the inputs of i, f and g and of h_t by that of o, side by
    side (T, B, 4H); and of h_t by c_t, (T, B, H)."""
    i, f, g, o = gates.chunk(4, dim=2)
    slopes = torch.empty_like(gates)
    by_i, by_f, by_g, by_o = slopes.chunk(4, dim=2)
    sigmoid_backward(g, i, grad_input=by_i)
    sigmoid_backward(c_before, f, grad_input=by_f)
    tanh_backward(i, g, grad_input=by_g)
    sigmoid_backward(tanh_c, o, grad_input=by_o)
    return slopes, torch.ops.aten.tanh_backward(o, tanh_c)
