"""A small table with columns of every kind, and models of it."""

import numpy as np
import pandas as pd

from bnaf import Model, TrainingSettings

QUICK = TrainingSettings(steps=5, seed=1)
MODELLED = ("city", "member", "visits", "price", "income", "day", "weight", "unit")


def kinds_frame(rows=120, seed=0):
    """Text, true and false, whole numbers, a grid, an atom, dates, empty cells, and a constant."""
    random = np.random.default_rng(seed)
    city = random.choice(np.array(["Oslo", "Rome", "Łódź"], dtype=object), rows)
    city[::11] = None
    visits = random.poisson(40, rows)
    income = np.where(random.random(rows) < 0.3, 0.0, random.random(rows) + 1)
    weight = random.normal(70, 9, rows) + (city == "Oslo")
    weight[::7] = np.nan
    return pd.DataFrame(
        {
            "key": [f"customer {row:04d}" for row in range(rows)],
            "city": city,
            "member": random.random(rows) < 0.4,
            "visits": visits,
            "price": np.round((visits + 20 * random.random(rows)) * 4) / 4,
            "income": income,
            "day": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(random.integers(0, 900, rows), "D"),
            "weight": weight,
            "unit": "kg",
        }
    )


def knotted_frame(rows=200, knot=20):
    """Rows of every kind, some with empty cells; the first ones are a knot of outliers."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "plan": random.choice(["basic", "plus", "pro"], rows, p=[0.6, 0.3, 0.1]),
            "visits": random.poisson(40, rows),
            "spent": random.normal(50, 9, rows),
        }
    )
    ends = random.integers(70, 74, knot), 85 + random.normal(size=knot)
    frame.loc[: knot - 1, "plan"] = "pro"
    frame.loc[: knot - 1, "visits"], frame.loc[: knot - 1, "spent"] = ends
    frame.loc[::9, "spent"] = np.nan
    return frame


def fit_kinds(frame, **options):
    small = {"settings": QUICK, "progress": False}
    if options.get("flow", "mixed") == "mixed":
        small["flow_settings"] = {"width": 3, "transforms": 1}
    return Model.fit(frame, **small | options)
