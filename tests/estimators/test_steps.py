"""Targets of few values."""

import numpy as np

from bnaf.estimators._steps import MOST_VALUES, Steps


def test_values_are_few_only_up_to_a_number_of_them():
    for count, few in ((MOST_VALUES, True), (MOST_VALUES + 1, False)):
        column = np.repeat(np.arange(float(count)), 2)
        assert (Steps.of(column, 100 * count) is not None) == few
