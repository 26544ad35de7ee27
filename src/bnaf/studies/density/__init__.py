"""Density estimation on the five tables: section 5.3 of the paper, its Tables 1 and 2."""
