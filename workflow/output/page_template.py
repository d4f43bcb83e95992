"""The templates of pages, which escape what they are given."""

from collections.abc import Callable
from pathlib import Path

import jinja2


def load_template(name: str, **filters: Callable) -> jinja2.Template:
    """Return a template of this folder; `filters` are its own, by name."""
    env = jinja2.Environment(
        autoescape=True,
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    env.filters |= filters
    return env.get_template(name)
