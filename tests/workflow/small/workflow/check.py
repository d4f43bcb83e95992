"""In place of the project's own checks: the models of the small project are none."""

from dataclasses import replace

from lib import params
from lib.tasks import datasets


def refuse_unusable(run, names):
    if names:
        for name in run.values["datasets"]:
            datasets.use_local_files(params.load_dataset_config(name))


def with_small(run, names):
    return replace(run, small=tuple(names))
