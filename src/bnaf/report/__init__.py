"""The report of a fit: what a model is, how well it holds, and where it does not.

:func:`assess` looks at a model and its table, and :func:`write_report` writes what it found as
one HTML file that needs no network.
"""

from bnaf.report.assessment import Assessment, assess
from bnaf.report.page import render_report, write_report

__all__ = ["Assessment", "assess", "render_report", "write_report"]
