"""`head.start=trunk`: a head that starts as the trunk's own, as far as they match."""

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from lmkit.data.datamodule import WindowsDataModule
from lmkit.data.windows import EvalWindows
from lmkit.errors.user_error import UserError
from lmkit.experiment.finetuning import best_is_start
from lmkit.fixed_trunk.corpus import ContextSplits
from lmkit.fixed_trunk.trunk import FixedTrunk
from lmkit.heads.head import Head, nearest_factors
from lmkit.heads.mixtures import SingleContext
from lmkit.heads.transforms import SoftCap
from lmkit.measures.perplexity import perplexity
from lmkit.presentation.quantities import perplexity_text
from lmkit.runs.names import name_of, place_of
from lmkit.training.callbacks.epoch_end import EpochEnd
from lmkit.training.callbacks.stopping import Patience
from lmkit.training.context import RunCallback
from lmkit.training.head_module import data_of, model_of


class AfterSoftCap(nn.Module):
    """A transform of soft-capped logits, as of Gemma 2.

    Args:
        cap: of `SoftCap`.
        transform: applied to its result.
    """

    def __init__(self, cap: float, transform: nn.Module) -> None:
        super().__init__()
        self.capped, self.transform = SoftCap(cap), transform
        self.display_name, self.place = name_of(transform), place_of(transform)

    def forward(self, logits: Tensor) -> Tensor:
        values: Tensor = self.transform(self.capped(logits))
        return values


class ContextScale(RunCallback):
    """Finds the factor of `trunk.rms` when a run starts; checkpoints hold it."""

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.ckpt_path is not None:
            return  # the run resumes
        trunk, data = model_of(pl_module).trunk, data_of(trainer)
        assert isinstance(trunk, FixedTrunk)
        assert isinstance(data, WindowsDataModule)
        found = trunk.scale(data.train_columns.inputs_SB)
        self.run.log.write(f"training contexts have RMS {found:.4g}, and now {trunk.rms:g}")


class HeadStart(RunCallback):
    """Gives a head the decoder of the trunk's own head when a run starts.

    These weights are the best ones, as of epoch 0, until an epoch beats them.
    """

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.ckpt_path is not None:
            return  # the run resumes
        model, data = model_of(pl_module), data_of(trainer)
        assert isinstance(data, WindowsDataModule)
        trunk, contexts = model.trunk, data.corpus
        assert isinstance(trunk, FixedTrunk)
        assert isinstance(contexts, ContextSplits)
        factor = 1.0 if trunk.factor is None else float(trunk.factor)
        start_as(model.head, contexts.source.head(), factor)
        train = perplexity(model, EvalWindows(data.train_columns, data.eval_length), "train, start")
        valid = perplexity(model, data.eval_batches("valid"), "valid, start")
        callbacks = trainer.callbacks  # type: ignore[attr-defined]  # set by a connector
        epoch_end = next(each for each in callbacks if isinstance(each, EpochEnd))
        best_is_start(model, epoch_end, valid.perplexity, train.perplexity, averaged=False)
        trigger = self.run.switch.trigger
        if isinstance(epoch_end.stopping, Patience) and (trigger.is_never or trigger.from_start):
            epoch_end.stopping.history.append(valid.perplexity)  # an epoch must beat it
        self.run.log.write(
            f"starting with the trunk's own decoder, at valid perplexity "
            f"{perplexity_text(valid.perplexity)}"
        )


@torch.no_grad()
def start_as(head: Head, own: Head, factor: float = 1.0) -> None:
    """Copies what matches of the trunk's `own` head: the decoder's weight and bias, and each of
    mixture, transform and further parameters that has the same class and sizes.

    A decoder of limited rank starts as the best approximation of that rank. What reads the contexts
    is divided by their `factor`, so that log P stays as it is.

    Raises: UserError if the decoders differ in size, the trunk's logits have another soft cap than
        the head's, or a mixture of the user's own does not name what reads the contexts.
    """
    weight_VE = own.word_weight()
    weight_VE = own.decoder_weight if weight_VE is None else weight_VE
    mine = (len(head.decoder_bias), head.mixture.emb_dim)
    if tuple(weight_VE.shape) != mine:
        remedy = f"choose {head.mixture.emb_option}={weight_VE.shape[1]}"
        if type(head.mixture) is SingleContext:  # a fixed trunk's size is no option
            remedy = "head/mixture=none leaves contexts as they are, so choose another mixture"
        raise UserError(
            f"head.start=trunk: the trunk's decoder is {tuple(weight_VE.shape)}, words by size of "
            f"a context, and the head's is {mine}: {remedy}"
        )
    cap = own.transform.cap if isinstance(own.transform, SoftCap) else None
    if isinstance(head.transform, AfterSoftCap) and head.transform.capped.cap != cap:
        raise UserError("head.start=trunk: the model's logits are not under the cap it declares")
    _copy(head, own)
    _copy(head.transform, own.transform)
    mixture = head.mixture
    if type(mixture) is SingleContext:
        weight_VE = weight_VE / factor
    elif _copy(mixture, own.mixture):
        if factor != 1 and not mixture.readers:
            raise UserError(
                f"head.start=trunk trunk.rms: {type(mixture).__name__} must name its linear layers "
                f"that read the trunk's output, as `readers`"
            )
        for name in mixture.readers:
            mixture.get_parameter(f"{name}.weight").div_(factor)
    head.decoder_bias.copy_(own.decoder_bias)
    if head.rank_map is None:
        head.decoder_weight.copy_(weight_VE)
    else:
        factor_VR, rows_RE = nearest_factors(weight_VE, head.rank_map.weight.shape[0])
        head.decoder_weight.copy_(factor_VR)
        head.rank_map.start_as(factor_VR, rows_RE)


def _copy(part: nn.Module, theirs: nn.Module) -> bool:
    """Gives a part the other's parameters, if it has the same class and sizes; whether it has."""
    mine, others = _state(part), _state(theirs)
    fits = type(part) is type(theirs) and {name: value.shape for name, value in mine.items()} == {
        name: value.shape for name, value in others.items()
    }
    if fits:
        part.load_state_dict(others, strict=False)
    return fits


def _state(part: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers; of a head those that are not its mixture's, transform's or map's."""
    state = part.state_dict().items()
    return {n: value for n, value in state if "." not in n or not isinstance(part, Head)}
