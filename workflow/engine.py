"""papermill's engine for notebooks, but a running notebook is written every few seconds and not twice for each cell.

The outputs of 08 have some megabytes: writing them after each cell would take most of a second.
"""

from typing import Any

from papermill.engines import NBClientEngine, NotebookExecutionManager, papermill_engines

EVERY = 5  # seconds
NAME = "nbclient, written rarely"


class Engine(NBClientEngine):
    """Write the notebook when it begins, every few seconds, and when it ends for any reason."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: NotebookExecutionManager, kernel_name: str, **options: Any) -> Any:
        def save(**facts: Any) -> None:
            if (nb_man.now() - nb_man.last_save_time).total_seconds() >= EVERY:
                NotebookExecutionManager.save(nb_man, **facts)

        nb_man.save = save
        try:
            return super().execute_managed_notebook(nb_man, kernel_name, **options)
        finally:
            del nb_man.save  # papermill writes the whole notebook next


papermill_engines.register(NAME, Engine)
