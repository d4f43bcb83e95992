"""In place of the project's own checks of models: those of the small project are none."""

from dataclasses import replace

from lib import params
from lib.tasks import dataset_sources
from workflow import project_check


def refuse_unusable(run, names):
    if names:
        for name in run.values["datasets"]:
            dataset_sources.use_local_files(params.load_dataset_config(name))


def with_small(run, names):
    return replace(run, small=tuple(names))


def main(run):
    """`check` is the project's own."""
    project_check.refuse_unusable = refuse_unusable
    project_check.with_small = with_small
    return project_check.main(run)
