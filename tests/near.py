"""Numbers that were computed in two ways."""

import numpy as np


def assert_near(found, expected, share=1e-7):
    """Compare arrays with an error of at most a share of the largest number expected.

    An entry near zero is often what larger ones leave when they cancel, so that its own size says
    nothing of the error it may have. How sums are ordered differs from machine to machine.
    """
    largest = np.nanmax(np.abs(np.asarray(expected)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=share * largest)
