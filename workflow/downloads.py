"""What jobs need from elsewhere, before the first job: weights, found on this machine or downloaded, and vLLM.

A model's file names a folder, a repository on the hub, or a GGUF file in either. A GGUF file may also lie in models/.
It must have the sha256 of the model's file. A link in artifacts/.models/<sha256>/ leads the jobs to it. vLLM gets an
environment of its own, for it pins another version of transformers than this project.
"""

import os
import platform
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from lib import params
from lib.files import sha256, write_atomically
from lib.parameter_schemas import Model
from lib.paths import ROOT, UserError, local_path, nearest
from workflow import environment, hub
from workflow.fingerprint import checksum
from workflow.pipeline import Job, Run
from workflow.progress import say

# Weights as safetensors, configuration, tokenizer and template: nothing that must be unpickled or executed.
WEIGHTS = ["*.safetensors", "*.safetensors.index.json"]
TEXTS = ["*.json", "*.jinja", "*.txt", "*.model"]
USABLE_SHARE = 0.95  # of a disk's free bytes


def files_of(spec: Model) -> list[str]:
    return [spec.gguf] if spec.gguf else WEIGHTS + TEXTS


# ---- what is here ------------------------------------------------------------------------------------------


def find_gguf(spec: Model) -> Path | None:
    """Return the GGUF file in the folder `source`, in models/ or in the hub's cache; None if it is in none of them."""
    file = local_path(spec.source) / str(spec.gguf)
    for place in (file, ROOT / "models" / file.name):
        if place.is_file():
            return place
    with suppress(UserError):
        cached = Path(hub.download(spec, files_of(spec), local_files_only=True)) / str(spec.gguf)
        return cached if cached.is_file() else None
    return None


def is_elsewhere(spec: Model) -> bool:
    """Whether a model is a GGUF file that is not on this machine."""
    return bool(spec.gguf) and not find_gguf(spec)


def find_config(spec: Model) -> tuple[str, dict[str, str]]:
    """Return the folder with a model's configuration and tokenizer, and the name of the GGUF file that holds them.

    From the hub only these are downloaded; a GGUF file must be here.
    """
    from lib.generate import checkpoints

    if spec.gguf:
        file = verified_gguf(spec)
        return str(file.parent), {"gguf_file": file.name}
    if hub.is_on_hub(spec):
        return hub.download(spec, TEXTS), {}
    folder = checkpoints.find_source(spec)
    if not list(Path(folder).glob("*.safetensors")):
        raise UserError(f"{spec.source} has no *.safetensors, the only weights that are loaded")
    return folder, {}


def verified_gguf(spec: Model) -> Path:
    """Return the GGUF file. Raise UserError if it is not here, or not the one of the sha256."""
    if not (file := find_gguf(spec)):
        raise UserError(f"{spec.gguf} of {spec.source} is yet to be fetched")
    if (found := checksum(str(file))) != spec.sha256:
        raise UserError(f"{spec.gguf} has sha256 {found}, expected {spec.sha256}: it is not used")
    return file


# ---- what is to be fetched ---------------------------------------------------------------------------------


def count_missing_bytes(spec: Model) -> int:
    """Return the bytes of a model's files that are not downloaded yet. Raise UserError if they can't be had."""
    if not hub.is_on_hub(spec) and not is_elsewhere(spec):
        return 0
    if not hub.names_repository(spec.source):
        there = [path.name for path in local_path(spec.source).glob("*.gguf")]
        raise UserError(f"no file {spec.gguf} in {spec.source}; {nearest(str(spec.gguf), there)}")
    try:
        hub.resolve_revision("model", spec.source, spec.revision)
        files = hub.download(spec, files_of(spec), dry_run=True)
    except UserError:
        with suppress(UserError):
            if any(Path(hub.download(spec, files_of(spec), local_files_only=True)).glob(WEIGHTS[0])):
                return 0
        raise
    if not files:
        raise UserError(f"repository '{spec.source}' has no file '{files_of(spec)[0]}' on the hub")
    return sum(file.file_size for file in files if file.will_download)


def free_bytes(place: Path) -> int:
    """Return the free bytes on the disk of a folder, which need not exist yet."""
    return shutil.disk_usage(next(folder for folder in (place, *place.parents) if folder.is_dir())).free


def why_no_room(wanted: int) -> str:
    """Return why this many bytes of weights do not fit on the disk of the hub's cache; empty if they do."""
    from huggingface_hub.constants import HF_HUB_CACHE

    free = free_bytes(Path(HF_HUB_CACHE).expanduser())
    if wanted <= USABLE_SHARE * free:
        return ""
    remedy = "free some, or set HF_HOME to a folder on a larger disk"
    return f"the download of weights needs {wanted / 1e9:.3g} GB: the disk has {free / 1e9:.1f} GB free; {remedy}"


def fetch(names: list[str]) -> None:
    """Download the weights that jobs need, after checking the access, revision and disk space of all of them. Verify
    and link GGUF files."""
    specs = {name: params.load_model_config(name) for name in names}
    missing = {name: count_missing_bytes(spec) for name, spec in specs.items()}
    if any(missing.values()) and (lack := why_no_room(sum(missing.values()))):
        raise UserError(lack)
    for name, spec in specs.items():
        if missing[name]:
            say(f"fetching {name}: {missing[name] / 1e9:.1f} GB of the repository {spec.source} on the hub")
            hub.download(spec, files_of(spec))
        if spec.gguf:
            link_gguf(spec)


def link_gguf(spec: Model) -> None:
    """Verify a GGUF file and make the link by which the jobs find it. It replaces an earlier one in one step."""
    file = verified_gguf(spec)
    write_atomically(spec.place / file.name, lambda link: link.symlink_to(file.resolve()))


# ---- vLLM ------------------------------------------------------------------------------------------------------

VENV, LOCK = ROOT / ".venv-vllm", ROOT / "requirements-vllm.lock"
SAMPLING = ("01", "04b")  # notebooks that sample responses
REMEDY = "write `engine: transformers` in the profile"


def uses_vllm(run: Run) -> bool:
    specs = [params.load_model_config(name) for name in run.values["models"]]
    return run.values.get("engine") == "vllm" and any(not spec.responses for spec in specs)


def why_no_vllm(run: Run) -> str:
    """Return why vLLM cannot be used on this machine; empty if it can."""
    if os.environ.get("VLLM_PYTHON"):
        return ""
    if not run.gpus:
        lacks = "`engine: vllm` needs a GPU with CUDA, and none is seen here"
        return f"{lacks}: {REMEDY}, or set VLLM_PYTHON to a Python with vLLM's CPU build"
    if not run.slurm and not any(map(shutil.which, ("cc", "gcc", "clang"))):
        lacks = "`engine: vllm` compiles kernels, and no C compiler is found here"
        return f"{lacks}: install gcc and g++, or {REMEDY}"
    return ""


def install_vllm(run: Run, todo: list[Job]) -> None:
    """Install vLLM's environment, if necessary, before the first job that samples. Raise UserError if that fails."""
    if not uses_vllm(run) or not any(job.notebook.number in SAMPLING for job in todo):
        return
    if reason := why_no_vllm(run):
        raise UserError(reason)
    stamp, made_of = VENV / "lock.sha256", f"{sha256(LOCK)} {platform.python_version()}"
    if os.environ.get("VLLM_PYTHON") or stamp.exists() and stamp.read_text(encoding="utf-8") == made_of:
        return
    say(f"installing vLLM into {VENV.name}, once (some GB) ...")
    python = [str(VENV / "bin" / "python"), *environment.PIP, "--no-deps", "--require-hashes", "-r", str(LOCK)]
    try:
        environment.run([sys.executable, "-m", "venv", "--clear", str(VENV)], "a virtual environment for vLLM")
        environment.run(python, "the installation of vLLM")
    except environment.SetupError as problem:
        raise UserError(f"{problem}, or {REMEDY}") from None
    stamp.write_text(made_of, encoding="utf-8")  # last: it is complete
