"""Estimators for scikit-learn: densities, conditional densities and outliers by flows."""

from bnaf.estimators.conditional import ConditionalFlowDensity, crps_scorer
from bnaf.estimators.density import FlowDensity
from bnaf.estimators.outliers import FlowOutlierDetector

__all__ = ["ConditionalFlowDensity", "FlowDensity", "FlowOutlierDetector", "crps_scorer"]
