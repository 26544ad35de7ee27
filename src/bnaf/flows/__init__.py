"""Flows, one file each, and the contract they all keep."""
