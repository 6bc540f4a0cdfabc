"""Pretrained causal language models and the text that they read, through `transformers`.

Weights are read from safetensors alone, and no code that comes with a model is run. Everything runs
in float32, as for runs of lmkit.

Shapes: V vocabulary.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from lmkit.data.subwords import Subwords
from lmkit.errors.user_error import UserError
from lmkit.measures.next_words import TextReader
from lmkit.pretrained.model import PretrainedModel, pretrained_model
from lmkit.pretrained.source import Checkpoint
from lmkit.pretrained.windows import StrideWindows, TokenizedText, window_and_stride


class LoadedPretrained(NamedTuple):
    """A pretrained model and the windows of a text that it reads."""

    checkpoint: Checkpoint
    model: PretrainedModel
    text: TokenizedText
    windows: StrideWindows

    def windows_of(self, tokens: np.ndarray) -> StrideWindows:
        """Other tokens in windows of the same size.

        Raises: UserError for a token that the model has no row for.
        """
        _require_rows(tokens, len(self.model.head.decoder_bias))
        windows = self.windows
        return StrideWindows(tokens, windows.window, windows.stride, windows.prefix)


class PretrainedReader(TextReader):
    """A pretrained model that reads its text in overlapping windows.

    Args:
        loaded: the model, with the text.
        split: what the text is called.
        top: how many of the likeliest tokens are given at each place.
    """

    def __init__(self, loaded: LoadedPretrained, split: str, top: int) -> None:
        super().__init__(loaded.model, loaded.text.tokens, top)
        self.loaded, self.name, self.split = loaded, loaded.checkpoint.name, split
        self.tokenizer = loaded.text.tokenizer
        self.vocabulary = self.tokenizer.shown(len(loaded.model.head.decoder_bias))
        self.begins = loaded.text.prefix[-1:]

    def windows(self, tokens: np.ndarray) -> StrideWindows:
        return self.loaded.windows_of(tokens)


class ModelFacts(NamedTuple):
    """What is known of a model before its weights are read."""

    folder: str  # absolute
    num_words: int  # rows of its output layer
    dim: int  # of its contexts
    prefix: tuple[int, ...]  # the tokens that its tokenizer puts before every text
    longest: int | None  # tokens that it can read at a time; None: any number
    cap: float | None  # the soft cap on its logits that its configuration declares


def facts_of(checkpoint: Checkpoint, option: str) -> ModelFacts:
    """Fetches a model of the hub where it is not there yet, once its tokenizer has been read.

    Raises: UserError when there is no such model, or it comes without a tokenizer or safetensors.

    Args:
        option: that names the model, for messages.
    """
    transformers, where = _transformers(), _where(checkpoint)
    with _told_of(option, checkpoint):
        config = _config(transformers, where).get_text_config()
        prefix = _tokenizer(transformers, where).prefix
        folder = _folder(checkpoint)
        _require_safetensors(Path(folder))
    longest = _longest(config)
    # OPT projects its last hidden state to the size of its embedding
    dim = getattr(config, "word_embed_proj_dim", None) or config.hidden_size
    cap = config.to_dict().get("final_logit_softcapping")
    return ModelFacts(folder, config.vocab_size, dim, prefix, longest, cap)


def load_pretrained(
    checkpoint: Checkpoint,
    text: str,
    *,
    window: int | None,
    stride: int | None,
    threads: int | None = None,
    option: str = "hf=",
) -> LoadedPretrained:
    """Loads a model and its tokenizer; a folder is read without asking the network for anything.

    Args:
        text: that it reads.
        window, stride: see `window_and_stride`.
        threads: of the CPU; None: as many as PyTorch takes.
        option: that names the model, for messages.

    Raises: UserError when there is no such model, it cannot be measured, or the text is too short.
    """
    transformers = _transformers()
    from huggingface_hub import constants  # comes with transformers

    if threads is not None:
        torch.set_num_threads(threads)
    where = _where(checkpoint)
    with _told_of(option, checkpoint):
        if checkpoint.is_local:
            _require_safetensors(Path(checkpoint.place))
        config = _config(transformers, where)
        if constants.HF_HUB_OFFLINE:  # before the text is read: nothing can be fetched later
            _require_safetensors(Path(_folder(checkpoint)))
        tokenized = TokenizedText(text, _tokenizer(transformers, where))
        longest = _longest(config.get_text_config())
        sizes = window_and_stride(window, stride, longest, tokenized.prefix)
        windows = StrideWindows(tokenized.tokens, *sizes, tokenized.prefix)
        _require_rows(tokenized.tokens, config.get_text_config().vocab_size)
        body = _body(transformers, config, where)
        model = pretrained_model(body, next(iter(windows)).inputs_TB[:, 0])
    if torch.cuda.is_available():
        model.to("cuda")
    return LoadedPretrained(checkpoint, model, tokenized, windows)


def _longest(config: Any) -> int | None:
    """How many tokens a model can read at a time; None: any number."""
    places: int | None = getattr(config, "max_position_embeddings", None)
    if places is not None and re.search("roberta|camembert", config.model_type):
        places -= config.pad_token_id + 1  # the first token's place comes after the padding's
    return places


def _require_rows(tokens: np.ndarray, num_rows: int) -> None:
    if tokens.size and tokens.max() >= num_rows:
        raise UserError(
            f"its tokenizer cuts the token {tokens.max()} out of the text, and the model has "
            f"{num_rows:,} rows: they do not belong together"
        )


@contextmanager
def _told_of(option: str, checkpoint: Checkpoint) -> Iterator[None]:
    """Puts the model before what is wrong with it."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{option}{checkpoint.place}: {error}") from None


def _where(checkpoint: Checkpoint) -> dict[str, Any]:
    """Arguments of `from_pretrained`."""
    return {
        "pretrained_model_name_or_path": checkpoint.place,
        "revision": checkpoint.revision or "main",
        "local_files_only": checkpoint.is_local,
        "trust_remote_code": False,
    }


def _transformers() -> ModuleType:
    """The library, quiet. It is an extra, and takes seconds to import."""
    try:
        import transformers
    except ImportError:
        raise UserError(
            "a pretrained model needs libraries that are not installed: pip install transformers "
            "safetensors"
        ) from None
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    module: ModuleType = transformers
    return module


def _tokenizer(transformers: ModuleType, where: dict[str, Any]) -> Subwords:
    """Raises: UserError for a model without a tokenizer, or with one that is a Python program."""
    tokenizer = _from(transformers.AutoTokenizer, where)
    if len(tokenizer.get_vocab()) <= len(tokenizer.all_special_ids):
        raise UserError("the model comes without a tokenizer")
    if not tokenizer.is_fast:
        raise UserError(
            f"its tokenizer, {type(tokenizer).__name__}, is a program in Python, and lmkit reads "
            f"those that the library tokenizers reads: a tokenizer.json"
        )
    return Subwords(tokenizer.backend_tokenizer)


def _body(transformers: ModuleType, config: Any, where: dict[str, Any]) -> nn.Module:
    """The model's weights, all of them, in float32."""
    if config.is_encoder_decoder:
        kind = (config.architectures or [type(config).__name__])[0]
        raise UserError(f"{kind} has an encoder and a decoder: it is no causal model")
    body, report = _from(
        transformers.AutoModelForCausalLM,
        where | {"use_safetensors": True, "dtype": torch.float32, "output_loading_info": True},
    )
    missing = sorted(report["missing_keys"])
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UserError(f"the weights of {type(body).__name__} lack {missing[0]}{more}")
    loaded: nn.Module = body.eval()
    return loaded


def _config(transformers: Any, where: dict[str, Any]) -> Any:
    """The model's configuration. Raises: UserError when it names the file of its weights:
    transformers would read any, and one that is no safetensors can run code.
    """
    config = _from(transformers.AutoConfig, where)
    for each in (config, config.get_text_config()):
        if (named := getattr(each, "transformers_weights", None)) is not None:
            raise UserError(
                f"its config.json names {named} as its weights, and lmkit reads model.safetensors "
                f"or its index alone: remove transformers_weights"
            )
    return config


def _require_safetensors(folder: Path) -> None:
    if not any(folder.glob("*.safetensors")):
        other = next(iter(sorted([*folder.glob("*.bin"), *folder.glob("*.pt")])), None)
        found = f"none in {folder}"
        if other is not None:
            found = f"only {other.name}, which can run code when it is read"
        raise UserError(
            f"weights must be in safetensors, but there are {found}; save_pretrained of a current "
            f"transformers writes them"
        )
    for index in folder.glob("*.safetensors.index.json"):
        try:
            names = set(map(str, json.loads(index.read_bytes())["weight_map"].values()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise UserError(f"{index} is no index of weights") from None
        for name in sorted(names):
            if Path(name).name != name or not name.endswith(".safetensors"):
                raise UserError(
                    f"{index} names {name}: weights must be in safetensors, beside the index"
                )


def _from(kind: Any, where: dict[str, Any]) -> Any:
    """`kind.from_pretrained`."""
    with _in_one_line():
        return kind.from_pretrained(**where)


@contextmanager
def _in_one_line() -> Iterator[None]:
    """Makes errors of any kind a UserError."""
    try:
        yield
    except Exception as error:  # whatever the library and those below it raise
        text = str(error)
        if "trust_remote_code" in text:
            raise UserError("it needs custom code, which lmkit does not run") from None
        if "Unrecognized configuration class" in text:
            raise UserError("it is not a causal language model of transformers") from None
        if "backend tokenizer" in text:
            raise UserError("the model comes without a tokenizer") from None
        if "couldn't connect" in text or "offline mode" in text:
            raise UserError(
                "it is not a folder, and Hugging Face's hub cannot be reached; give a folder that "
                "save_pretrained wrote"
            ) from None
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        raise UserError(lines[0] if lines else type(error).__name__) from None


def _folder(checkpoint: Checkpoint) -> str:
    if checkpoint.is_local:
        return str(Path(checkpoint.place).resolve())
    from huggingface_hub import snapshot_download  # comes with transformers

    wanted = ["*.safetensors", "*.json", "*.txt", "*.model"]
    with _in_one_line():
        place, revision = checkpoint.place, checkpoint.revision
        return str(snapshot_download(place, revision=revision, allow_patterns=wanted))
