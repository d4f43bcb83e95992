"""Convert a GGUF file to an ordinary checkpoint: safetensors, configuration, tokenizer and template.

transformers reads such a file (with the package `gguf`), but slowly. So this is done once, in a separate process
(`python -m lib.generate.gguf_file FILE FOLDER`).
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from filelock import FileLock
from gguf import GGUFReader

from lib.paths import UserError, commit, first_line, sync

EXACT_IN_FLOAT32 = {"F32", "F16"}  # number types that float32 represents exactly


def choose_precision(file: Path) -> str:
    """Return the precision of a file's checkpoint. Raise UserError if it is not GGUF.

    It is float32 if that represents every weight exactly, else bfloat16. bfloat16 represents BF16 exactly, and its
    rounding (at most 2^-9 of a weight) is far below that of four or eight bits.
    """
    try:
        types = {tensor.tensor_type.name for tensor in GGUFReader(file).tensors}
    except (ValueError, OSError, IndexError, KeyError) as error:
        raise UserError(f"{file.name} can't be read as GGUF: {first_line(error)}") from error
    return "float32" if types <= EXACT_IN_FLOAT32 else "bfloat16"


def convert_gguf(file: Path, folder: Path) -> None:
    """Write the checkpoint of a GGUF file to a folder, completely or not at all.

    Raise UserError if transformers cannot read the file.
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
    """Return the folder of an incomplete checkpoint."""
    return folder.with_name(f".{folder.name}.unfinished")


def write_checkpoint(file: Path, folder: Path) -> None:
    """Write the files of the checkpoint, without any path of this machine."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, utils  # partial_folder_of needs none

    plain: dict[str, Any] = {"dtype": choose_precision(file), "quantization_config": GgufConfig(dequantize=True)}
    utils.logging.disable_progress_bar()
    place, named = str(file.parent), {"gguf_file": file.name, "trust_remote_code": False}
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
    source, target = map(Path, sys.argv[1:])
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(target.with_name(f".{target.name}.lock")):
            if not target.is_dir():  # another run may have converted it
                convert_gguf(source, target)
    except UserError as problem:
        print(problem, file=sys.stderr)
        sys.exit(2)
