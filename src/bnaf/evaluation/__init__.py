"""How good a density is: scores, calibration, comparison."""
