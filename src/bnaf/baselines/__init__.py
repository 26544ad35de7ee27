"""Flows that the paper compares with; each is a :class:`bnaf.Flow` and passes the same tests."""

from bnaf.baselines.glow import Glow
from bnaf.baselines.planar import Planar

__all__ = ["Glow", "Planar"]
