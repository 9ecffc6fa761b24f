"""Conformal prediction from held-out scores: scores, p-values, temperatures, and the calibration that holds them."""

from candidly.conformal.pvalues import (
    cross_p_values,
    p_values,
    p_values_by_rank,
    ranks,
    remark_level,
    smoothed_p_values,
    with_ends,
)
from candidly.conformal.scores import aps, best, mean, off_candidate_mass, pooled, singletons, sort_scores, worst
from candidly.conformal.temperature import (
    TEMPERATURES,
    blocks,
    candidate_log_odds,
    candidate_probabilities,
    fit_candidate_probabilities,
    fit_temperature,
    log,
)

__all__ = [
    "TEMPERATURES",
    "aps",
    "best",
    "blocks",
    "candidate_log_odds",
    "candidate_probabilities",
    "cross_p_values",
    "fit_candidate_probabilities",
    "fit_temperature",
    "log",
    "mean",
    "off_candidate_mass",
    "p_values",
    "p_values_by_rank",
    "pooled",
    "ranks",
    "remark_level",
    "singletons",
    "smoothed_p_values",
    "sort_scores",
    "with_ends",
    "worst",
]
