"""Time our training step beside a dense MLP of the same layer widths, the floor.

python benchmarks/training.py --out results/training.json
"""

from functools import partial

from steps import build_bnaf, build_mlp, run

if __name__ == "__main__":
    run(
        {
            "mlp": build_mlp,
            "bnaf": partial(build_bnaf, mode="native"),
            "bnaf plain": build_bnaf,
            "bnaf compiled": partial(build_bnaf, mode="compiled"),
        }
    )
