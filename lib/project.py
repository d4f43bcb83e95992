"""Where the project's folders are, and mistakes that the user can mend."""

import difflib
import warnings
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ARTIFACTS = ROOT / "artifacts"
PARAMS = ROOT / "params"
MODELS = ARTIFACTS / ".models"  # GGUF files, converted: a checkpoint by the name of each file's sha256
SHIPPED = ARTIFACTS / "shipped" / "demo"

# tqdm, which transformers brings, in a notebook without ipywidgets: its bars are text there, and that is all right
warnings.filterwarnings("ignore", message="IProgress not found")


class UserError(ValueError):
    """A mistake that the user can mend: one line saying what was wrong, where, and the nearest right thing."""


def nearest(word: str, options: Iterable[str]) -> str:
    """Half a sentence that points from a wrong `word` to the right one, or lists what there is."""
    options = sorted(set(options))
    close = difflib.get_close_matches(str(word), options, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"there is: {', '.join(options) or 'nothing'}"
