"""Direct output connection: a mixture of softmaxes over several layers of the trunk.

Takase, Suzuki and Nagata 2018, "Direct Output Connection for a High-Rank Language Model". With h^l
the output of layer l after its dropout (l = 0 is the embedding),

    latent_k = tanh(W_k h^l(k) + b_k)        log prior = log softmax(U h^L)

and a penalty on unequal use of the components is added to the loss, so that none goes unused.
K_l components belong to layer l. The paper's penalty is the squared coefficient of variation of the
components' priors, summed over the window:

    weight var_K(s_k) / mean_K(s_k)^2,   s_k = sum_TB p_TBk

The authors' program sums only over time and takes the unbiased variance over all B K sums:

    weight (K - 1) var_BK(s_bk) / mean_BK(s_bk)^2,   s_bk = sum_T p_TBk

Shapes: T window length, B batch, N = T*B contexts, E embedding, D features of the layers used,
concatenated, the last layer's at the end, K components.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lmkit.errors.user_error import (
    UserError,
    require_at_least,
    require_choice,
    require_count,
    require_list,
    require_rate,
)
from lmkit.heads.mixtures import Mixture, MixtureOutput, log_prior
from lmkit.trunk.dropout import locked_dropout


class DirectOutputConnection(Mixture):
    """`doc`: latents of several layers, mixed as distributions.

    Args:
        emb_dim, hidden_dim, out_dim, num_layers: as of the trunk.
        experts: components of the embedding and of each layer; the last layer has at least 1.
        latent_dropout: locked dropout on all latents.
        balance_weight: of the penalty on unequal use of the components.
        penalty_of: whose penalty it is, "paper" or "program".
    """

    display_name, place = "DOC", 3

    def __init__(
        self,
        *,
        emb_dim: int,
        hidden_dim: int,
        out_dim: int,
        num_layers: int,
        experts: Sequence[int],
        latent_dropout: float,
        balance_weight: float,
        penalty_of: str = "paper",
    ) -> None:
        super().__init__()
        require_list("head.mixture.experts", experts, "[0,0,5,15]")
        if len(experts) != num_layers + 1:
            raise UserError(
                f"head.mixture.experts must be {num_layers + 1} numbers, of the embedding and of "
                f"each layer, but is {list(experts)}"
            )
        for i, count in enumerate(experts):
            require_count(f"head.mixture.experts[{i}]", count, minimum=int(i == num_layers))
        require_rate("head.mixture.latent_dropout", latent_dropout)
        require_at_least("head.mixture.balance_weight", balance_weight, 0)
        require_choice("head.mixture.penalty_of", penalty_of, ("paper", "program"))
        dims = [emb_dim] + [hidden_dim] * (num_layers - 1) + [out_dim]
        self.layers = tuple(i for i, count in enumerate(experts) if count)
        self.dims = [dims[i] for i in self.layers]
        self.in_dim, self.emb_dim, self.num_components = sum(self.dims), emb_dim, sum(experts)
        self.latent_dropout, self.balance_weight = latent_dropout, balance_weight
        self.penalty_of = penalty_of
        self.prior = nn.Linear(out_dim, self.num_components, bias=False)
        self.latents = nn.ModuleList(nn.Linear(dims[i], experts[i] * emb_dim) for i in self.layers)

    def forward(self, hidden_TBD: Tensor) -> MixtureOutput:
        parts = torch.split(hidden_TBD, self.dims, dim=2)
        latents = [latent(part) for latent, part in zip(self.latents, parts, strict=True)]
        latent = torch.tanh(torch.cat(latents, dim=2))
        latent = locked_dropout(latent, self.latent_dropout, self.training)
        latent_NKE = latent.reshape(-1, self.num_components, self.emb_dim)
        return MixtureOutput(self._log_prior(hidden_TBD), latent_NKE)

    def penalty(self, hidden_TBD: Tensor) -> Tensor:
        """The penalty on the priors of a window, a scalar."""
        prior_NK = self._log_prior(hidden_TBD).exp()
        if self.num_components == 1:
            return prior_NK.new_zeros(())  # of one number the program's variance is NaN
        if self.penalty_of == "program":
            use_BK = prior_NK.view(*hidden_TBD.shape[:2], self.num_components).sum(0)
            spread = (self.num_components - 1) * use_BK.var() / use_BK.mean() ** 2
            return self.balance_weight * spread
        use_K = prior_NK.sum(0)
        return self.balance_weight * use_K.var(correction=0) / use_K.mean() ** 2

    def _log_prior(self, hidden_TBD: Tensor) -> Tensor:
        return log_prior(self.prior, hidden_TBD[..., -self.dims[-1] :])
