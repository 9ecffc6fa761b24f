"""Gamma and Dirichlet samples against their distributions."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch.distributions import Dirichlet, kl_divergence

from candidly.engine.nets import sampling


def uniforms(*shape, seed=0, dtype=torch.float64):
    return torch.rand(*shape, sampling.NOISE_PER_GAMMA, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def log_gamma_cdf(a):
    """Distribution function of the logarithm of a Gamma(a, 1) variable; the samples themselves may underflow."""

    def cdf(x):
        tail = np.exp(a * np.minimum(x, -600) - special.gammaln(a + 1))
        return np.where(x < -600, tail, special.gammainc(a, np.exp(np.maximum(x, -600))))

    return cdf


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("a", [0.01, 0.5, 0.75, 1.01, 5.0, 30.0])
def test_log_gamma_sample_has_the_gamma_distribution(a, dtype):
    samples = sampling.log_gamma_sample(torch.full((20000,), a, dtype=dtype), uniforms(20000, dtype=dtype))
    assert stats.kstest(samples.double().numpy(), log_gamma_cdf(a)).pvalue > 0.01


def test_log_gamma_sample_distribution_test_can_fail():
    samples = sampling.log_gamma_sample(torch.full((20000,), 0.5, dtype=torch.float64), uniforms(20000))
    assert stats.kstest(samples.numpy(), log_gamma_cdf(0.52)).pvalue < 0.01


def test_log_gamma_sample_rejects():
    """The first accepted proposal counts: with a tiny `accept` every round is accepted, with one near 1 few are."""
    a, u = torch.full((4000,), 0.1, dtype=torch.float64), uniforms(4000)
    rounds = sampling.NOISE_PER_GAMMA // 2
    always = u.clone()
    always[:, rounds : 2 * rounds] = 0
    first, found = sampling.log_gamma_sample(a, always), sampling.log_gamma_sample(a, u)
    share = float((first != found).double().mean())
    assert 0.005 < share < 0.08  # Marsaglia and Tsang accept 95 % and more
    d = a + 2 / 3
    v = (1 + torch.special.ndtri(u[:, 0]) / (9 * d).sqrt()) ** 3
    usable = v > 0
    expected = (d * v).log() + u[:, -1].log() / a
    assert torch.allclose(first[usable], expected[usable], rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("a", [0.01, 0.5, 1.01, 30.0])
@pytest.mark.parametrize("value", [0.0, "just below 1", 0.5])
def test_log_gamma_gradients_are_finite(a, value, dtype):
    one = math.nextafter(1.0, 0.0) if dtype == torch.float64 else float(np.nextafter(np.float32(1), np.float32(0)))
    number = one if value == "just below 1" else value
    shape = torch.full((3,), a, dtype=dtype, requires_grad=True)
    u = torch.full((3, sampling.NOISE_PER_GAMMA), number, dtype=dtype)
    rounds = sampling.NOISE_PER_GAMMA // 2
    u[1, :rounds], u[2, rounds:] = 0.0, one
    sample = sampling.log_gamma_sample(shape, u)
    (gradient,) = torch.autograd.grad(sample.sum(), shape)
    assert sample.isfinite().all()
    assert gradient.isfinite().all()


def test_log_dirichlet_gradients_are_finite():
    """Where all components but one underflow."""
    a = torch.tensor([0.01, 0.01, 0.01], requires_grad=True)
    u = torch.rand(500, 3 * sampling.NOISE_PER_GAMMA, generator=torch.Generator().manual_seed(0))
    u[0], u[1] = 0.0, 1 - 2**-24
    log_t = sampling.log_dirichlet_sample(a.expand(500, 3), u)
    assert torch.allclose(log_t.exp().sum(-1), torch.ones(500), atol=1e-5)
    (gradient,) = torch.autograd.grad(log_t.exp().square().sum(), a)
    assert gradient.isfinite().all()


def test_log_dirichlet_sample_moments():
    a = torch.tensor([0.01, 0.3, 1.01, 2.0], dtype=torch.float64)
    u = torch.rand(40000, 4 * sampling.NOISE_PER_GAMMA, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    t = sampling.log_dirichlet_sample(a.expand(40000, 4), u).exp()
    exact = Dirichlet(a)
    error = (exact.variance / 40000).sqrt()
    assert ((t.mean(0) - exact.mean).abs() < 4 * error).all()
    assert torch.allclose(t.var(0)[1:], exact.variance[1:], rtol=0.03)  # the first is too rare to show its variance


@pytest.mark.parametrize("a", [(0.21, 0.41, 0.41), (1.01, 0.01, 0.01), (2.0, 3.0, 1.0)])
def test_expected_gradient_of_a_dirichlet_component(a):
    """E[t_1] = a_1 / Σ a, hence ∂E[t_1]/∂a_1 = (Σ a - a_1) / (Σ a)² and ∂E[t_1]/∂a_2 = -a_1 / (Σ a)²."""
    n = 200_000
    shape = torch.tensor(a, dtype=torch.float64).repeat(n, 1).requires_grad_()
    u = torch.rand(n, 3 * sampling.NOISE_PER_GAMMA, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    t = sampling.log_dirichlet_sample(shape, u).exp()[:, 0]
    (gradient,) = torch.autograd.grad(t.sum(), shape)
    total = sum(a)
    exact = torch.tensor([(total - a[0]) / total**2, -a[0] / total**2, -a[0] / total**2], dtype=torch.float64)
    error = gradient.std(0) / math.sqrt(n)
    assert ((gradient.mean(0) - exact).abs() < 0.02 * exact.abs() + 3 * error).all()
    assert (3 * error < 0.05 * exact.abs()).all()  # else the line above shows little


@pytest.mark.parametrize("classes", [2, 5])
def test_dirichlet_kl_equals_torch(classes):
    generator = torch.Generator().manual_seed(0)
    a = 0.01 + 30 * torch.rand(3, 4, classes, generator=generator, dtype=torch.float64) ** 3
    exact = kl_divergence(Dirichlet(a), Dirichlet(torch.ones_like(a)))
    assert torch.allclose(sampling.dirichlet_kl_to_uniform(a), exact, rtol=1e-10, atol=1e-10)
    assert torch.allclose(sampling.dirichlet_kl_to_uniform(torch.ones(3)), torch.zeros(()), atol=1e-6)
    a.requires_grad_()
    (ours,) = torch.autograd.grad(sampling.dirichlet_kl_to_uniform(a).sum(), a)
    (theirs,) = torch.autograd.grad(kl_divergence(Dirichlet(a), Dirichlet(torch.ones_like(a))).sum(), a)
    assert torch.allclose(ours, theirs, rtol=1e-8, atol=1e-10)
