"""All tables by name, for what goes through every one of them: the comparison with the paper, notes, and `verify`."""

from collections.abc import Callable

import pandas as pd

from lib.analysis.results import NUMBER_KEY, QUANTITIES, Results
from lib.paper import beyond_paper, calibration_tables, tables
from lib.paper.booktabs import Table
from lib.paper.captions import CAPTIONS, OF_PAPER

FUNCTIONS = vars(tables) | vars(calibration_tables) | vars(beyond_paper)
TABLES: dict[str, Callable[[Results], Table]] = {
    name: FUNCTIONS[name.removeprefix("tab_")] for name in CAPTIONS if name.startswith("tab_")
}


def printed_numbers(results: Results) -> pd.DataFrame:
    """Return the numbers that the paper's tables print.

    Columns: NUMBER_KEY and QUANTITIES, labels of models and datasets (`..._label`), the `key` of each within its table
    in one word, as in cells, and the `text` of its cell.
    """
    shown = {name: build(results).numbers for name, build in TABLES.items() if name in OF_PAPER}
    parts = [numbers.assign(table=name) for name, numbers in shown.items() if len(numbers)]
    numbers = pd.concat(parts, ignore_index=True).dropna(subset="value")
    numbers = numbers.reindex(columns=[*NUMBER_KEY, *QUANTITIES, "key", "text"])
    words = [name for name in NUMBER_KEY if name not in ("rate", "bins")]
    numbers[words] = numbers[words].fillna("")
    labels = {"model": dict(results.models), "dataset": dict(results.datasets)}
    labels |= {f"source_{name}": known for name, known in labels.items()}
    return numbers.assign(**{f"{name}_label": numbers[name].replace(known) for name, known in labels.items()})
