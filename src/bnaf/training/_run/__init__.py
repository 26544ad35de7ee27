"""A run: the one loop, and its parts."""
