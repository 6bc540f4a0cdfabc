"""Small models of transformers, which is an extra and takes seconds to import."""

import random
import re
from pathlib import Path

SIZES = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
}
WORDS = ["the", "company", "said", "naïve", "shares", "of", "Zürich", "rose", "<unk>", "\n"]
DRAW = random.Random(1)
TEXT = " ".join(DRAW.choice(WORDS) for _ in range(400))


def make_tokenizer(text: str, *, begins: bool = False, template: str | None = None):
    """A byte-level tokenizer of 290 tokens.

    Args:
        begins: whether it puts its `bos_token` before every text.
        template: what it makes of a text $A instead, with further special tokens.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", *re.findall(r"[<[]\S+", template or "")],
        show_progress=False,
    )
    made.train_from_iterator([text], trainer)
    if begins or template:
        template = template or "<s> $A"
        special = [(name, made.token_to_id(name)) for name in re.findall(r"[<[]\S+", template)]
        made.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>")


def make_gpt2(*, num_words: int):
    """GPT-2 of two layers of 16, which reads 32 tokens at a time."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=num_words, n_embd=16, n_layer=2, n_head=2, n_positions=32)
    return GPT2LMHeadModel(config)


def save_models(folder: Path) -> None:
    """Writes models of several kinds and their tokenizers, each into a folder of its name."""
    import torch
    import transformers as t

    torch.manual_seed(0)
    words = {"vocab_size": 304}
    plain = words | SIZES
    grouped = plain | {"num_key_value_heads": 1, "head_dim": 8}
    of_t5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    models = {
        "gpt2": make_gpt2(num_words=2000),
        "neox": t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**plain)),
        "llama": t.LlamaForCausalLM(t.LlamaConfig(**grouped)),
        "gemma": t.Gemma2ForCausalLM(t.Gemma2Config(final_logit_softcapping=2.0, **grouped)),
        "cohere": t.CohereForCausalLM(t.CohereConfig(logit_scale=0.3, **plain)),
        "phi": t.PhiForCausalLM(t.PhiConfig(**plain)),
        "bert": t.BertForMaskedLM(t.BertConfig(**plain)),
        "t5": t.T5ForConditionalGeneration(t.T5Config(**words, **of_t5)),
    }
    for name, model in models.items():
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))  # biases too, and large logits
        model.save_pretrained(folder / name)
        make_tokenizer(TEXT, begins=name == "llama").save_pretrained(folder / name)
