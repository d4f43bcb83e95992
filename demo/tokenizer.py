"""Byte-level BPE tokenizers of the demo models: the corpus's words, single digits and special
tokens."""

from collections.abc import Iterable
from random import Random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from demo import chat, corpus, solutions
from lib.tasks import prompts

# Newlines, words with a leading space, single digits, runs of symbols.
PIECES = r"\n+| ?[A-Za-z]+|\d| ?[^\sA-Za-z\d]+|\s"
SPECIAL = {
    "tiny-llama": [
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|eot_id|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|pad|>",
    ],
    "tiny-qwen": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
}
TAGS = ["<think>", "</think>"]  # of tiny-qwen; kept in decoded text, as in Qwen 3


def texts(seed: int) -> Iterable[str]:
    """Yield enough training text for every word of the corpus to become one token."""
    rng = Random(seed)
    for _ in range(20_000):
        problem = corpus.draw(rng, rng.choice(list(corpus.LEVELS.values())))
        yield problem.question
        yield solutions.solution(problem)
    extra = ("user system assistant", "What is 1 + 1?", "A B A: B: `A` `B`")
    for text in (prompts.SYSTEM, chat.FULL, chat.SHORT, chat.PROPOSED, *extra):
        yield from [text] * 500


def train(name: str, seed: int) -> PreTrainedTokenizerFast:
    """Train the tokenizer of model `name`, with its chat template."""
    base = Tokenizer(models.BPE())
    pieces = pre_tokenizers.Split(Regex(PIECES), "isolated")
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    base.pre_tokenizer = pre_tokenizers.Sequence([pieces, bytes_])  # type: ignore[assignment]
    base.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        min_frequency=20,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    base.train_from_iterator(texts(seed), trainer)
    base.add_special_tokens(SPECIAL[name])
    if name == "tiny-llama":
        return PreTrainedTokenizerFast(
            tokenizer_object=base,
            bos_token="<|begin_of_text|>",
            eos_token="<|eot_id|>",
            pad_token="<|pad|>",
            chat_template=chat.LLAMA_TEMPLATE,
            clean_up_tokenization_spaces=False,
        )
    base.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=base,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=chat.QWEN_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
