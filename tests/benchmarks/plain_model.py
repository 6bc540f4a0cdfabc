"""AWD-LSTM and its heads in plain PyTorch: the yardstick of bench_step.py and of the golden trace,
structured as the original authors' code. Written for that purpose; it uses nothing of lmkit.

nn.LSTM gets a dropped recurrent weight each window; logits, transform, softmax and mixture are
whole tensors, differentiated by autograd.

Shapes: T window length, B batch, N = T*B contexts, D trunk output, E embedding, K components,
V vocabulary.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

State = list[tuple[Tensor, Tensor]]


class LockedDropout(nn.Module):
    def forward(self, x: Tensor, dropout: float) -> Tensor:
        mask = x.new_empty(1, x.size(1), x.size(2)).bernoulli_(1 - dropout) / (1 - dropout)
        return mask.expand_as(x) * x


def embedded_dropout(embedding: nn.Embedding, words: Tensor, dropout: float) -> Tensor:
    weight = embedding.weight
    mask = weight.new_empty(weight.size(0), 1).bernoulli_(1 - dropout) / (1 - dropout)
    return F.embedding(words, mask.expand_as(weight) * weight)


class WeightDropLSTM(nn.Module):
    """One layer of nn.LSTM whose recurrent weight is dropped anew in each window."""

    def __init__(self, in_dim: int, hidden_dim: int, weight_dropout: float) -> None:
        super().__init__()
        self.lstm = nn.LSTM(in_dim, hidden_dim)
        self.weight_hh_raw = nn.Parameter(self.lstm.weight_hh_l0.data)
        del self.lstm._parameters["weight_hh_l0"]
        self.weight_dropout = weight_dropout

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple]:
        dropped = F.dropout(self.weight_hh_raw, self.weight_dropout, self.training)
        self.lstm.weight_hh_l0 = dropped  # nn.LSTM puts it among its flat weights
        return self.lstm(x, state)


class Sigsoftmax(nn.Module):
    """log of exp(z) sigmoid(z), to be normalised by log_softmax."""

    def forward(self, logits: Tensor) -> Tensor:
        return logits + F.logsigmoid(logits)


class GSS(nn.Module):
    def __init__(self, c: float = -1.5, k: float = 2.5) -> None:
        super().__init__()
        self.c, self.k = c, k

    def forward(self, logits: Tensor) -> Tensor:
        shifted = logits - self.c
        return self.k * shifted + self.c - (self.k - 1) * F.softplus(shifted)


class PLIF(nn.Module):
    def __init__(self, knots: int, limit: float = 20.0) -> None:
        super().__init__()
        self.knots, self.limit, self.step = knots, limit, 2 * limit / knots
        self.raw_slopes = nn.Parameter(torch.randn(knots) + math.log(math.expm1(1.0)))

    def forward(self, logits: Tensor) -> Tensor:
        slopes = F.softplus(self.raw_slopes)
        heights = torch.cumsum(slopes, 0) * self.step - slopes * self.step
        piece = ((logits.detach() + self.limit) / self.step).long().clamp(0, self.knots - 1)
        knot = piece * self.step - self.limit
        return heights[piece] + slopes[piece] * (logits - knot)


class PlainHead(nn.Module):
    """A mixture of softmaxes (none if `num_experts` is 0) and a decoder tied to the embedding."""

    smallest = 1e-8  # that is added to a mixture's probabilities

    def __init__(
        self,
        num_words: int,
        emb_dim: int,
        out_dim: int,
        transform: nn.Module,
        num_experts: int,
        latent_dropout: float,
    ) -> None:
        super().__init__()
        self.emb_dim, self.num_experts, self.latent_dropout = emb_dim, num_experts, latent_dropout
        self.lockdrop, self.transform = LockedDropout(), transform
        self.encoder = nn.Embedding(num_words, emb_dim)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        if num_experts:
            self.prior = nn.Linear(out_dim, num_experts, bias=False)
            self.latent = nn.Linear(out_dim, num_experts * emb_dim)
        self.decoder = nn.Linear(emb_dim, num_words)
        self.decoder.weight = self.encoder.weight
        nn.init.zeros_(self.decoder.bias)

    def log_prob(self, output_TBD: Tensor) -> Tensor:
        """(N, V): log P of every word after every context."""
        if not self.num_experts:
            logits = self.decoder(output_TBD.view(-1, output_TBD.size(2)))
            return F.log_softmax(self.transform(logits), dim=1)
        latent = self.lockdrop(torch.tanh(self.latent(output_TBD)), self.latent_dropout)
        logits = self.transform(self.decoder(latent.view(-1, self.emb_dim)))
        prior = F.softmax(self.prior(output_TBD).view(-1, self.num_experts), dim=1)
        prob = F.softmax(logits, dim=1).view(-1, self.num_experts, logits.size(1))
        prob = (prob * prior.unsqueeze(2).expand_as(prob)).sum(1)
        return torch.log(prob.add_(self.smallest))


class PlainModel(PlainHead):
    """The trunk before a head; `transform` is "identity", "sigsoftmax", "gss" or "plif"."""

    def __init__(
        self,
        num_words: int,
        emb_dim: int,
        hidden_dim: int,
        out_dim: int,
        num_layers: int,
        embed_dropout: float,
        input_dropout: float,
        hidden_dropout: float,
        output_dropout: float,
        weight_dropout: float,
        transform: str,
        num_experts: int,
        latent_dropout: float,
        knots: int,
    ) -> None:
        kinds = {"identity": nn.Identity, "sigsoftmax": Sigsoftmax, "gss": GSS}
        curve = PLIF(knots) if transform == "plif" else kinds[transform]()
        super().__init__(num_words, emb_dim, out_dim, curve, num_experts, latent_dropout)
        dims = [emb_dim] + [hidden_dim] * (num_layers - 1) + [out_dim]
        self.embed_dropout, self.input_dropout = embed_dropout, input_dropout
        self.hidden_dropout, self.output_dropout = hidden_dropout, output_dropout
        self.layers = nn.ModuleList(
            WeightDropLSTM(dims[i], dims[i + 1], weight_dropout) for i in range(num_layers)
        )

    def initial_state(self, batch_size: int) -> State:
        zeros = self.encoder.weight.new_zeros
        sizes = [(1, batch_size, layer.lstm.hidden_size) for layer in self.layers]
        return [(zeros(size), zeros(size)) for size in sizes]

    def trunk(self, words_TB: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """Output with and without the last dropout, and the new state."""
        x = embedded_dropout(self.encoder, words_TB, self.embed_dropout)
        x = self.lockdrop(x, self.input_dropout)
        new_state = []
        for i, layer in enumerate(self.layers):
            x, layer_state = layer(x, state[i])
            new_state.append(layer_state)
            raw = x
            if i < len(self.layers) - 1:
                x = self.lockdrop(x, self.hidden_dropout)
        return self.lockdrop(raw, self.output_dropout), raw, new_state


def train_step(
    model: PlainHead,
    optimizer: torch.optim.Optimizer,
    words_TB: Tensor,
    targets_TB: Tensor,
    state: State,
    ar_weight: float,
    tar_weight: float,
    clip: float,
) -> tuple[Tensor, State]:
    """One window: forward, objective, backward, clipping, step.

    Returns: its loss, and the state after it.
    """
    state = [(first.detach(), second.detach()) for first, second in state]
    optimizer.zero_grad()
    output, raw, state = model.trunk(words_TB, state)
    loss = F.nll_loss(model.log_prob(output), targets_TB.view(-1))
    if ar_weight:
        loss = loss + ar_weight * output.pow(2).mean()
    if tar_weight:
        loss = loss + tar_weight * (raw[1:] - raw[:-1]).pow(2).mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.detach(), state
