"""Scaling laws: how large a model, how many tokens, for a budget of FLOPs."""

from bytemill.scaling.fits import Fit, Interval, LossLaw, Runs, fit_loss
from bytemill.scaling.isoflops import BudgetOptimum, IsoFlopFit, fit_isoflops

__all__ = [
    "BudgetOptimum",
    "Fit",
    "Interval",
    "IsoFlopFit",
    "LossLaw",
    "Runs",
    "fit_isoflops",
    "fit_loss",
]
