"""How long the intervals of a paper-sized run take, and how much longer a loop over resamples would. Run by hand:

    python tests/benchmarks/bootstrap.py

15 pairs (n = 1319, 400, 300 for five models), seven estimators, raw, isotonic and five of them by a second method;
5000 resamples. The loop is torchmetrics' binary_calibration_error (ECE and MCE) on 200 resamples of one estimator.
"""

import time

import numpy as np
import pandas as pd
import torch
from torchmetrics.functional.classification import binary_calibration_error

from lib.score.bootstrap import bootstrap, resample_metrics

ESTIMATORS = ["seq_avg", "seq_joint", "ans_avg", "ans_joint", "p_true", "p_true_insitu", "c_bald"]
SCORES = [(e, m) for m in ("", "isotonic") for e in ESTIMATORS] + [(e, "platt") for e in ESTIMATORS[2:]]
RESAMPLES, LOOPED = 5000, 200


def scores(n: int, rng: np.random.Generator) -> pd.DataFrame:
    c, keys = rng.beta(5, 1, (n, len(SCORES))), {"split": "evaluation", "example_id": np.arange(n).astype(str)}
    correct = rng.random(n) < c.mean(axis=1)
    parts = [pd.DataFrame(keys | {"estimator": e, "method": m, "confidence": c[:, j], "correct": correct})
             for j, (e, m) in enumerate(SCORES)]  # fmt: skip
    return pd.concat(parts)


def main() -> None:
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    pairs = [(f"m{i}", n) for i in range(5) for n in (1319, 400, 300)]
    frame = pd.concat([scores(n, rng).assign(model=model, dataset=f"d{n}") for model, n in pairs])
    started = time.perf_counter()
    results = bootstrap(frame, resamples=RESAMPLES).results
    print(f"{len(results)} intervals from {RESAMPLES} resamples: {time.perf_counter() - started:.1f} s")

    part = frame.query("model == 'm0' and dataset == 'd1319'")
    wide = part.pivot(index="example_id", columns=["estimator", "method"], values="confidence").to_numpy()
    correct = part.drop_duplicates("example_id").sort_values("example_id").correct.to_numpy()
    started = time.perf_counter()
    resample_metrics(wide, correct, resamples=RESAMPLES)
    ours = (time.perf_counter() - started) / RESAMPLES / len(SCORES)
    c, y = torch.tensor(wide[:, 0]), torch.tensor(correct).long()
    started = time.perf_counter()
    for _ in range(LOOPED):
        rows = torch.from_numpy(rng.integers(0, len(y), len(y)))
        for norm in ("l1", "max"):
            binary_calibration_error(c[rows], y[rows], n_bins=10, norm=norm)
    loop = (time.perf_counter() - started) / LOOPED
    times = f"{1e6 * ours:.1f} us, in a loop of torchmetrics {1e6 * loop:.0f} us"
    print(f"per resample and estimator: {times}: {loop / ours:.0f} times")


if __name__ == "__main__":
    main()
