"""Peak extra memory of sampling, against response length. Run by hand:

    python tests/benchmarks/memory.py

A random Llama with a vocabulary of 32,000 writes responses of three lengths; each way of keeping token probabilities
runs in a process of its own, whose peak memory is compared with that of plain generation.
"""

import resource
import subprocess
import sys

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, LogitsProcessorList

from lib import params
from lib.generate.sampling import SeededSampler

BATCH, VOCABULARY = 32, 32_000


def peak(way: str, length: int) -> float:
    """Peak resident memory in MB of a process that generates `length` tokens for a batch."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
        )
    ).eval()
    ids = torch.randint(VOCABULARY, (BATCH, 8))
    config = GenerationConfig(
        do_sample=False,
        max_new_tokens=length,
        min_new_tokens=length,
        pad_token_id=0,
        eos_token_id=None,
        return_dict_in_generate=True,
        output_logits=way == "output_logits",
    )
    chain = LogitsProcessorList()
    if way == "ours":
        chain = LogitsProcessorList([SeededSampler(params.load_model_config("tiny-llama"), range(BATCH), length)])
    with torch.inference_mode():
        model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config, logits_processor=chain)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    print("extra MB over plain generation, batch", BATCH, "vocabulary", VOCABULARY)
    for length in (32, 128, 512):
        peaks = {}
        for way in ("plain", "ours", "output_logits"):
            command = [sys.executable, __file__, way, str(length)]
            peaks[way] = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])
        extra = {way: peaks[way] - peaks["plain"] for way in ("ours", "output_logits")}
        print(f"length {length:4d}: " + ", ".join(f"{way} {mb:.0f}" for way, mb in extra.items()))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(peak(sys.argv[1], int(sys.argv[2])))
    else:
        main()
