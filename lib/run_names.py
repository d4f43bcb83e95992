"""The models and datasets that a notebook's parameters name: which of them are meant, and their labels."""

from collections.abc import Sequence

from lib import params


def models_at_hand(models: Sequence[str]) -> list[str]:
    """Return the models whose weights are available; the others have only precomputed responses."""
    return [name for name in models if params.load_model_config(name).at_hand]


def labels_by_name(kind: str, chosen: Sequence[str]) -> dict[str, str]:
    """Return the label of each of a run's models or datasets (`kind`).

    Raise UserError unless they are a list of distinct names with files.
    """
    params.check_parameters({f"{kind}s": chosen})
    return {name: params.LOADERS[kind](name).label for name in chosen}


def select_names(kind: str, wanted: Sequence[str], there: Sequence[str]) -> list[str]:
    """Return the wanted models or datasets (`kind`) of the run, or all if none of them is wanted.

    Raise UserError for a name without a file, or if the run has none.
    """
    params.check_parameters({f"{kind}s": list(there)})
    for name in [*there, *wanted]:
        params.find_parameter_file(kind, name)
    return [name for name in there if name in wanted] or list(there)


def choose_one(kind: str, wanted: str, there: Sequence[str]) -> str:
    """Return the wanted model or dataset, or the run's first if that is empty or absent. Raise as `select_names`."""
    return select_names(kind, [wanted] if wanted else [], there)[0]
