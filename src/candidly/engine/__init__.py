"""The training loop and its two contracts, `Method` and `Cleaner`; no method or cleaner is implemented here."""

from candidly.candidates.weights import masked_softmax, uniform_weights
from candidly.engine.contract import Batch, BuildNet, Cleaner, Method, OneNetwork, Predict, Sweep
from candidly.engine.fitting import fit
from candidly.engine.model import Model
from candidly.engine.nets.losses import candidate_nll, soft_ce
from candidly.engine.problem import Problem
from candidly.engine.recipe import RECIPES, Recipe

__all__ = [
    "RECIPES",
    "Batch",
    "BuildNet",
    "Cleaner",
    "Method",
    "Model",
    "OneNetwork",
    "Predict",
    "Problem",
    "Recipe",
    "Sweep",
    "candidate_nll",
    "fit",
    "masked_softmax",
    "soft_ce",
    "uniform_weights",
]
