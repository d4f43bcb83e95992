"""A GGUF file as an ordinary checkpoint: safetensors, configuration, tokenizer and template.

transformers reads such a file (with the package `gguf`), but slowly. So this is done once, in a process of its own
(`python -m lib.generate.gguf_file FILE FOLDER`).
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from gguf import GGUFReader

from lib.paths import UserError, commit, first_line, sync

EXACT_IN_FLOAT32 = {"F32", "F16"}  # types of numbers that float32 holds exactly


def measure_gguf(file: Path) -> tuple[str, int]:
    """The precision to convert a file into, and how many weights it has. Raises UserError where it is not GGUF.

    float32 where that holds every weight exactly; else bfloat16, whose rounding (by 2^-9 of a weight at most) is far
    below that of four or eight bits, and which holds BF16 exactly.
    """
    try:
        tensors = GGUFReader(file).tensors
    except (ValueError, OSError, IndexError, KeyError) as error:
        raise UserError(f"{file.name} can't be read as GGUF: {first_line(error)}") from error
    exact = {tensor.tensor_type.name for tensor in tensors} <= EXACT_IN_FLOAT32
    return "float32" if exact else "bfloat16", sum(int(tensor.n_elements) for tensor in tensors)


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
    """The same, file by file. No path of this machine stays in them."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, utils  # here: sizes are had without

    dtype, _ = measure_gguf(file)
    utils.logging.disable_progress_bar()
    place, named = str(file.parent), {"gguf_file": file.name, "trust_remote_code": False}
    plain: dict[str, Any] = {"dtype": dtype, "quantization_config": GgufConfig(dequantize=True)}
    try:
        AutoTokenizer.from_pretrained(place, **named).save_pretrained(folder)
        AutoModelForCausalLM.from_pretrained(place, **named, **plain).save_pretrained(folder)
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        raise UserError(f"{file.name} can't be converted: {first_line(error)}") from error
    for path in folder.glob("*config.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        kept = {name: value for name, value in content.items() if place not in str(value)}
        path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        convert_gguf(Path(sys.argv[1]), Path(sys.argv[2]))
    except UserError as problem:
        print(problem, file=sys.stderr)
        sys.exit(2)
