"""Data sets known by name: laws to draw from, energies, tables and images."""
