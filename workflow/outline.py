"""A model looked at without its weights: its configuration, tokenizer and network, with the headers of what lies in a
local folder. Nothing is loaded, so that whatever is wrong with it is said in a second."""

from pathlib import Path
from typing import Any

from lib import params
from lib.paths import UserError, first_line
from workflow import hub


def local_copy(spec: params.Model) -> str:
    """The folder with a model's configuration and tokenizer; from the hub these alone are fetched."""
    from lib.generate import models

    if hub.remote(spec):
        return hub.texts(spec)
    folder = models.find_source(spec)
    if not list(Path(folder).glob("*.safetensors")):
        raise UserError(f"{spec.source} holds no *.safetensors, the only weights that are loaded")
    return folder


def parts(name: str, spec: params.Model, folder: str) -> tuple[Any, Any, dict]:
    """A language model without weights, the network without memory, and the model's own decoding settings."""
    from transformers import AutoTokenizer, GenerationConfig, logging

    from lib.generate import models

    logging.set_verbosity_error()
    try:
        local = not hub.remote(spec)  # of the hub's weights, some or none may have been fetched
        models.check_files(Path(folder))
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        network = without_memory(folder, local)
        own = network.generation_config
        if (Path(folder) / "generation_config.json").exists():
            own = GenerationConfig.from_pretrained(folder)
        ends = models.find_end_tokens(network, tokenizer, own)
    except UserError:
        raise
    except Exception as error:  # transformers and what it reads the files with raise what they like
        raise UserError(f"can't be loaded: {first_line(error)}") from error
    return models.LanguageModel(name, spec, network, tokenizer, ends, {}), network, own.to_diff_dict()


def without_memory(folder: str, whole: bool) -> Any:
    """The network on torch's meta device. In a `whole` folder the headers of its weights are held against it, by what
    loading itself goes by; raises UserError where they do not fit."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, logging

    from lib.generate import models

    logging.disable_progress_bar()
    if whole and any(Path(folder).glob("*.safetensors")):
        network, info = AutoModelForCausalLM.from_pretrained(
            folder, device_map="meta", trust_remote_code=False, use_safetensors=True, output_loading_info=True
        )
        models.check_loaded(info)
        return network
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)
