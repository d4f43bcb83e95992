"""A GGUF file as an ordinary checkpoint: safetensors, configuration, tokenizer and template.

transformers reads such a file (with the packages `gguf` and `accelerate`), but slowly, and cannot save what it loads as
it is. So this is done once, in a process of its own (`python -m lib.generate.gguf_file FILE FOLDER`).
"""

import importlib.metadata
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from gguf import GGUFReader

from lib.paths import UserError, commit, first_line, sync

EXACT_IN_FLOAT32 = {"F32", "F16"}  # types of numbers that float32 holds exactly


def list_gguf_tensors(file: Path) -> list[tuple[str, int]]:
    """(type of numbers, how many) for each tensor. Raises UserError for a file that is not GGUF."""
    try:
        return [(tensor.tensor_type.name, int(tensor.n_elements)) for tensor in GGUFReader(file).tensors]
    except (ValueError, OSError, IndexError, KeyError) as error:
        raise UserError(f"{file.name} can't be read as GGUF: {first_line(error)}") from error


def choose_gguf_dtype(file: Path) -> str:
    """float32 where that holds every weight exactly; else bfloat16, whose rounding (by 2^-9 of a weight at most) is far
    below that of four or eight bits, and which holds BF16 exactly."""
    return "float32" if {kind for kind, _ in list_gguf_tensors(file)} <= EXACT_IN_FLOAT32 else "bfloat16"


def count_gguf_weights(file: Path) -> int:
    """Weights in a file."""
    return sum(number for _, number in list_gguf_tensors(file))


def convert_gguf(file: Path, folder: Path) -> None:
    """Make the checkpoint of a GGUF file, as a folder that is whole or not there at all.

    Raises UserError where transformers cannot read the file.
    """
    scratch = partial_folder_of(folder)
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        write_checkpoint(file, scratch)
        for path in scratch.iterdir():
            sync(path)
        commit(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def partial_folder_of(folder: Path) -> Path:
    """Where a checkpoint lies until it is whole."""
    return folder.with_name(f".{folder.name}.unfinished")


def write_checkpoint(file: Path, folder: Path) -> None:
    import torch  # here: who asks for sizes alone does without these
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, utils

    utils.logging.disable_progress_bar()
    dtype = getattr(torch, choose_gguf_dtype(file))
    options: dict[str, Any] = {"gguf_file": file.name, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(file.parent), **options)
        options |= {"dtype": dtype, "quantization_config": GgufConfig(dequantize=True), "low_cpu_mem_usage": True}
        read = AutoModelForCausalLM.from_pretrained(str(file.parent), **options)
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        raise UserError(f"{file.name} can't be converted: {first_line(error)}") from error
    without_quantization(read).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    remove_fields(folder / "config.json", "_name_or_path", "_model_name_or_path")
    remove_fields(folder / "tokenizer_config.json", "name_or_path", "is_local", "local_files_only")
    made_from = {"file": file.name, "transformers": importlib.metadata.version("transformers")}
    (folder / "made_from.json").write_text(json.dumps(made_from, indent=1) + "\n", encoding="utf-8")


def without_quantization(read: Any) -> Any:
    """The same network, over the same weights, without what remembers that these were quantised."""
    import torch
    from transformers import AutoModelForCausalLM

    if hasattr(read.config, "quantization_config"):
        del read.config.quantization_config
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(read.config, dtype=read.dtype)
    network.load_state_dict(read.state_dict(), assign=True)
    network.tie_weights()
    return network


def remove_fields(path: Path, *names: str) -> None:
    """Take entries that may name folders of this machine out of a JSON file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    kept = {name: value for name, value in content.items() if name not in names}
    path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        convert_gguf(Path(sys.argv[1]), Path(sys.argv[2]))
    except UserError as problem:
        print(problem, file=sys.stderr)
        sys.exit(2)
