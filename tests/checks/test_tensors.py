"""Functions of tensors name what they were given instead."""

import numpy as np
import pytest
import torch

from candidly import conformal, metrics

P = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
S = torch.tensor([[True, True, False], [True, True, False]])
Y = torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.accuracy(P.numpy(), Y), r"p is array\(.*; it must be a tensor, such as torch.as_tensor\(p\)"),
        (lambda: metrics.accuracy(P, [0, 1]), r"y is \[0, 1\]; it must be a tensor"),
        (lambda: metrics.accuracy(P, Y.double()), "y has dtype torch.float64; it must be a tensor of integers"),
        (lambda: metrics.covering_rate(P, S.int()), "S has dtype torch.int32; it must be a boolean tensor"),
        (
            lambda: metrics.covering_rate(P, S[:, :2]),
            r"p has shape \(2, 3\) and S has shape \(2, 2\); they must have the",
        ),
        (lambda: metrics.covering_rate(P[0], S), r"p has shape \(3,\); it must have the axes"),
        (lambda: metrics.true_kept(S, after=None, y=Y), "after is None; it must be a tensor"),
        (lambda: metrics.pruning_f(S, S, Y, beta="1"), "beta is '1'; it must be a finite number above 0"),
        (lambda: metrics.calibration_error(P, Y, bins=2.5), "bins is 2.5; it must be an integer of at least 1"),
        (lambda: metrics.coverage_curve(P, Y, [0.1]), r"alphas is \[0.1\]; it must be a tensor"),
        (lambda: conformal.best(P.tolist(), S), "p is .*; it must be a tensor"),
        (lambda: conformal.worst(P, np.ones((2, 3), bool)), "S is array"),
        (lambda: conformal.candidate_probabilities(P, S, 0), "temperature is 0; it must be a finite number above 0"),
        (lambda: conformal.remark_level("0.1", P, Y), "alpha is '0.1'; it must be a finite number"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_several_runs_may_share_sets_and_labels():
    runs = P.expand(4, 2, 3)
    assert metrics.covering_rate(runs, S).shape == metrics.accuracy(runs, Y).shape == (4,)
