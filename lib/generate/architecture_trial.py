"""Try what a run needs of a model on a network of its kind, with few layers and random weights, on the processor.

Some kinds keep state otherwise than in a cache of keys and values. In some, dropout takes no effect. Neither can be
told from a name, and both would show only after hours.
"""

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.nn.functional import pad
from transformers import AutoModelForCausalLM, DynamicCache, GenerationConfig

from lib.generate.models import LanguageModel
from lib.generate.pretrained import is_small
from lib.generate.sampling import encode_prefix, repeat_row, select_rows
from lib.paths import first_line

VOCABULARY = 512  # of the network that is tried
MOST = {  # of its sizes, by their names in configurations
    **dict.fromkeys(("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size", "ffn_dim"), 64),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "num_experts_per_token", "top_k_experts"), 2),
    **dict.fromkeys(("n_group", "topk_group"), 1),
}
TOKENS, SHARED, STEPS = 14, 4, 5  # of the rows that are read; those that all begin with; tokens that are generated
Reading = tuple[str, torch.Tensor, torch.Tensor]  # what was read: the logits, and those of a plain forward pass
FAR = 1e-3  # difference of logits that is no rounding, in multiples of the largest


def shrink_config(config: Any) -> Any:
    """Return a configuration of few layers, neurons, experts and tokens, with every type of layer that it has.

    The width of the residual stream stays, since other sizes depend on it in ways of each kind.
    """
    config = type(config).from_dict(config.to_dict())
    layers = config.num_hidden_layers
    types = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or [""]
    few = min(layers, max(2, 1 + max(list(types).index(kind) for kind in set(types))))
    own = vars(config)
    for name, value in list(own.items()):
        if isinstance(value, list) and len(value) == layers:
            own[name] = value[:few]
    own.update({name: min(own[name], most) for name, most in MOST.items() if isinstance(own.get(name), int)})
    config.num_hidden_layers = few
    config.vocab_size = min(config.vocab_size, VOCABULARY)
    config.bos_token_id, config.eos_token_id, config.pad_token_id = None, None, 0
    return config


def random_twin(lm: LanguageModel) -> LanguageModel:
    """Return a model of the same kind with random weights: of all its layers if it is small, else of few.

    Weights are larger than usual, so that no layer goes unseen. Raises what the network's own code raises.
    """
    config = lm.model.config if is_small(lm.model) else shrink_config(lm.model.config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = AutoModelForCausalLM.from_config(copy.deepcopy(config), dtype=torch.float32).eval()
    layers = [layer for layer in network.modules() if isinstance(layer, (torch.nn.Linear, torch.nn.Embedding))]
    for weight in {layer.weight for layer in layers}:  # once if it is tied
        weight.data.mul_(4)
    network.generation_config = GenerationConfig(pad_token_id=0)
    network(torch.ones((2, TOKENS), dtype=torch.long), use_cache=False)
    return replace(lm, model=network)


@torch.inference_mode()
def why_no_cache(lm: LanguageModel) -> str:
    """Return why rows can't be read from a cache as a run does; empty if they can.

    Rows share their beginning, are read in parts and singly, change places, and are padded on the left. All must agree
    with a plain forward pass.
    """
    ids = torch.randint(1, lm.vocab_size, (2, TOKENS), generator=torch.Generator().manual_seed(0))
    ids[1, :SHARED] = ids[0, :SHARED]
    try:
        for what, logits, plain in (*read_from_cache(lm, ids), *read_padded(lm, ids)):
            if not (logits - plain).abs().max() <= FAR * plain.abs().max():
                return f"logits {what} differ from those of a plain forward pass"
    except Exception as error:  # of the network's own code
        return f"{type(error).__name__}: {first_line(error)}"
    return ""


def read_from_cache(lm: LanguageModel, ids: torch.Tensor) -> Iterator[Reading]:
    """Yield the logits of rows of tokens (2, n) after a shared beginning, which stays unchanged, and one at a time."""
    plain, turned = lm.model(ids, use_cache=False).logits, [1, 0]
    beginning = encode_prefix(lm, ids[0, :SHARED].tolist())
    for _ in range(2):
        cache = repeat_row(beginning, 2)
        yield "after a cache", lm.model(ids[:, SHARED:-2], past_key_values=cache).logits, plain[:, SHARED:-2]
        cache = select_rows(cache, turned)
        for place in (TOKENS - 2, TOKENS - 1):
            logits = lm.model(ids[turned, place : place + 1], past_key_values=cache).logits[:, 0]
            yield "of rows that changed places", logits, plain[turned, place]


def read_padded(lm: LanguageModel, ids: torch.Tensor) -> Iterator[Reading]:
    """Yield the logits of generated tokens, in a batch of which one row is padded on the left."""
    short = ids[1, :-SHARED]
    padded = torch.stack([ids[0], pad(short, (SHARED, 0))])
    mask = torch.stack([torch.ones_like(ids[0]), pad(torch.ones_like(short), (SHARED, 0))])
    settings = GenerationConfig(do_sample=False, max_new_tokens=STEPS, pad_token_id=0,
                                output_logits=True, return_dict_in_generate=True)  # fmt: skip
    cache = DynamicCache(config=lm.model.config)
    made = lm.model.generate(input_ids=padded, attention_mask=mask, past_key_values=cache, generation_config=settings)
    for row, start in enumerate((0, SHARED)):
        plain = lm.model(made.sequences[row : row + 1, start:-1], use_cache=False).logits[0, -STEPS:]
        yield "of a padded row" if start else "of a generated row", torch.stack(made.logits)[:, row], plain
