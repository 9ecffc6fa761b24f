"""Synthetic candidate sets: exact against loops over the same draws, and in the mean against their law."""

import itertools
import math
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from candidly.data import corrupt
from candidly.engine.recipe import Recipe

N, C = 2000, 6
GROUPS = ["a", "b", "a", "b", "a", "c"]
CHANCES = (0.9, 0.5, 0.2)


def labels(n=N):
    return np.random.default_rng(1).integers(C, size=n)


def probabilities(n=N):
    return np.random.default_rng(2).dirichlet(np.full(C, 0.5), size=n)


def draws(seed, n=N):
    return np.random.Generator(np.random.PCG64(seed)).random((n, C))


def wrong_of(y):
    return np.arange(C) != y[:, None]


def within_bound(S, P):
    """Whether the count of candidates is within five standard deviations of the sum of their probabilities."""
    return abs(S.sum() - P.sum()) <= 5 * np.sqrt((P * (1 - P)).sum())


def each_within_bound(S, P):
    """Whether each column's count is within five standard deviations of the sum of its probabilities."""
    return (abs(S.sum(axis=0) - P.sum(axis=0)) <= 5 * np.sqrt((P * (1 - P)).sum(axis=0))).all()


def follows(S, law):
    """Whether sets drawn for one label are distributed as {set of columns: probability}: chi-square and each alone."""
    assert math.isclose(sum(law.values()), 1)
    found = Counter(tuple(np.flatnonzero(row).tolist()) for row in S)
    assert found.keys() <= law.keys()
    expected = {S_: len(S) * chance for S_, chance in law.items()}
    alone = all(abs(found[S_] - m) <= 5 * math.sqrt(m * (1 - m / len(S))) for S_, m in expected.items())
    chi_square = sum((found[S_] - m) ** 2 / m for S_, m in expected.items())
    return alone and chi_square <= stats.chi2.isf(1e-6, max(len(law) - 1, 1))


def literal_draw(y, law, seed, again=lambda chosen: False, num_classes=C):
    """Draw with plain loops, law(y, j) being the probability of label j; rows that `again` refuses take new numbers."""
    generator = np.random.Generator(np.random.PCG64(seed))
    S = [[] for _ in y]
    rows = list(range(len(y)))
    while rows:
        U = generator.random((len(rows), num_classes))
        for i, u in zip(rows, U, strict=True):
            S[i] = [bool(law(y[i], j) > u[j]) for j in range(num_classes)]
        rows = [i for i in rows if again(S[i])]
    return np.array(S)


def literal_law(p, y, rate):
    P = np.zeros((len(y), C))
    for i, t in enumerate(y):
        u = [0.0 if j == t else p[i][j] for j in range(C)]
        u = [value / max(u) for value in u]
        if rate is not None:
            mean = sum(u) / C
            u = [min(1.0, rate * value / mean) for value in u]
        P[i] = u
        P[i, t] = 1
    return P


@pytest.mark.parametrize("q", [0, 0.1, 0.7, 1])
def test_uniform_follows_its_law(q):
    y = labels()
    S = corrupt.uniform(y, C, q, seed=3)
    assert S.shape == (N, C)
    assert S.dtype == bool
    assert S[np.arange(N), y].all()
    wrong = S[wrong_of(y)]
    assert within_bound(wrong, np.full(wrong.shape, float(q)))
    U = draws(3)
    assert S.tolist() == [[j == y[i] or q > U[i, j] for j in range(C)] for i in range(N)]


LITERAL = {
    "uniform": (lambda y, seed: corrupt.uniform(y, C, 0.3, seed), lambda t, j: 1 if j == t else 0.3),
    "hierarchical": (
        lambda y, seed: corrupt.hierarchical(y, GROUPS, 0.4, seed),
        lambda t, j: 1 if j == t else 0.4 if GROUPS[j] == GROUPS[t] else 0,
    ),
    "uniform_superset": (
        lambda y, seed: corrupt.uniform_superset(y, C, seed),
        lambda t, j: 1 if j == t else 0.5,
        all,
    ),
    "label_dependent": (
        lambda y, seed: corrupt.label_dependent(y, C, seed, CHANCES),
        lambda t, j: (1, *CHANCES, 0, 0)[(j - t) % C],
    ),
    "noisy": (
        lambda y, seed: corrupt.noisy(y, C, 0.1, 0.7, seed),
        lambda t, j: 1 - 0.7 if j == t else 0.1,
        lambda chosen: not any(chosen),
    ),
}


@pytest.mark.parametrize("block", [1, 50, 6 * 6, 6 * N, corrupt.BLOCK])
@pytest.mark.parametrize("name", LITERAL)
def test_block_borders_change_no_bit(name, block, monkeypatch):
    monkeypatch.setattr(corrupt, "BLOCK", block)
    y = labels(300)
    make, *law = LITERAL[name]
    S = make(y, 4)
    assert S.shape == (300, C)
    assert S.dtype == bool
    assert np.array_equal(S, literal_draw(y, law[0], 4, *law[1:]))


def test_real_blocks_equal_one_draw():
    n = 3 * corrupt.BLOCK // C + 1
    y = labels(n)
    assert np.array_equal(corrupt.uniform(y, C, 0.1, seed=5), (np.where(wrong_of(y), 0.1, 1) > draws(5, n)))
    p = probabilities(n)
    assert np.array_equal(corrupt.instance_dependent_from(p, y, 5, 0.8), literal_law(p, y, 0.8) > draws(5, n))
    in_columns = np.asfortranarray(p)
    assert np.array_equal(
        corrupt.instance_dependent_from(in_columns, y, 5, 0.8), corrupt.instance_dependent_from(p, y, 5, 0.8)
    )


def test_hierarchical_stays_in_the_superclass():
    y = labels()
    S = corrupt.hierarchical(y, GROUPS, 0.3, seed=3)
    same = np.array([[a == b for b in GROUPS] for a in GROUPS])[y]
    assert S[np.arange(N), y].all()
    assert not S[~same].any()
    inside = same & wrong_of(y)
    assert abs(S[inside].sum() - 0.3 * inside.sum()) <= 5 * np.sqrt(0.3 * 0.7 * inside.sum())
    assert each_within_bound(S, np.where(wrong_of(y), 0.3 * same, 1))
    numbers = [7, 3, 7, 3, 7, 0]
    assert np.array_equal(S, corrupt.hierarchical(y, numbers, 0.3, seed=3))
    assert np.array_equal(corrupt.hierarchical(y, [0] * C, 0.3, seed=3), corrupt.uniform(y, C, 0.3, seed=3))


@pytest.mark.parametrize("num_classes", [3, 4])
def test_uniform_superset_takes_all_sets_alike(num_classes):
    for t in range(num_classes):
        others = [j for j in range(num_classes) if j != t]
        sets = [
            tuple(sorted([t, *chosen]))
            for size in range(num_classes - 1)
            for chosen in itertools.combinations(others, size)
        ]
        assert len(sets) == 2 ** (num_classes - 1) - 1
        S = corrupt.uniform_superset(np.full(7000, t), num_classes, seed=t)
        assert follows(S, dict.fromkeys(sets, 1 / len(sets)))


def test_uniform_superset_sizes():
    y = labels()
    S = corrupt.uniform_superset(y, C, seed=1)
    assert S[np.arange(N), y].all()
    sizes = np.bincount(S.sum(axis=1), minlength=C + 1)
    assert sizes[0] == sizes[C] == 0
    expected = np.array([N * math.comb(C - 1, k - 1) / (2 ** (C - 1) - 1) for k in range(1, C)])
    assert ((sizes[1:C] - expected) ** 2 / expected).sum() <= stats.chi2.isf(1e-6, C - 2)
    assert each_within_bound(S, np.where(wrong_of(y), (2 ** (C - 2) - 1) / (2 ** (C - 1) - 1), 1))
    assert np.array_equal(corrupt.uniform_superset([0, 1, 1], 2, seed=0), np.eye(2, dtype=bool)[[0, 1, 1]])


def test_label_dependent_goes_round():
    y = labels()
    S = corrupt.label_dependent(y, C, seed=2)
    for k, chance in enumerate([1, 0.5, 0.4, 0.3, 0.2, 0.1]):
        count = S[np.arange(N), (y + k) % C].sum()
        assert abs(count - N * chance) <= 5 * np.sqrt(N * chance * (1 - chance))
    few = corrupt.label_dependent(np.array([5, 0], dtype=np.uint64), C, seed=2, probabilities=[1, 1])
    assert few.astype(int).tolist() == [[1, 1, 0, 0, 0, 1], [1, 1, 1, 0, 0, 0]]
    assert np.array_equal(corrupt.label_dependent(y, C, 0, probabilities=[]), np.eye(C, dtype=bool)[y])


@pytest.mark.parametrize(("q", "eta"), [(0.1, 0.5), (0.3, 0.9), (0.05, 1), (0, 0.6), (0.2, 0), (1, 0.5)])
def test_noisy_follows_its_conditional_law(q, eta):
    t, num_classes, law = 1, 4, {}
    for chosen in itertools.product([False, True], repeat=num_classes):
        chance = math.prod(
            (p if drawn else 1 - p)
            for drawn, p in zip(chosen, [1 - eta if j == t else q for j in range(num_classes)], strict=True)
        )
        if any(chosen) and chance > 0:
            law[tuple(np.flatnonzero(chosen).tolist())] = chance
    accepted = sum(law.values())
    law = {chosen: chance / accepted for chosen, chance in law.items()}
    S = corrupt.noisy(np.full(8000, t), num_classes, q, eta, seed=3)
    assert follows(S, law)
    a = 1 - eta * (1 - q) ** (num_classes - 1)
    for j in range(num_classes):
        share = (1 - eta if j == t else q) / a
        assert math.isclose(share, sum(chance for chosen, chance in law.items() if j in chosen), abs_tol=1e-12)
        assert abs(S[:, j].sum() - 8000 * share) <= 5 * math.sqrt(8000 * share * max(1 - share, 0)) + 1e-6


def test_noisy_without_noise_is_uniform():
    y = labels()
    assert np.array_equal(corrupt.noisy(y, C, 0.3, 0, seed=3), corrupt.uniform(y, C, 0.3, seed=3))


def test_long_tailed_counts():
    balanced = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000))
    rows = corrupt.long_tailed(balanced, 10, 0.01, seed=0)
    assert (np.diff(rows) > 0).all()
    assert np.bincount(balanced[rows]).tolist() == [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    assert np.array_equal(corrupt.long_tailed(balanced, 10, 1, seed=0), np.arange(50000))
    sizes = [100, 3, 0, 40, 100]
    uneven = np.repeat(np.arange(5), sizes)
    for rho in (0.0001, 0.01, 0.29, 0.5):
        rows = corrupt.long_tailed(uneven, 5, rho, seed=1)
        wished = [math.floor(100 * rho ** (c / 4)) for c in range(4)] + [round(100 * rho)]
        found = np.bincount(uneven[rows], minlength=5).tolist()
        assert found == [min(size, max(1, wish)) for size, wish in zip(sizes, wished, strict=True)]


def test_long_tailed_rows_are_a_fair_choice():
    y = np.random.default_rng(0).permutation(np.repeat([0, 1], 20))
    times = np.zeros(40)
    for seed in range(400):
        times[corrupt.long_tailed(y, 2, 0.25, seed)] += 1
    assert (times[y == 0] == 400).all()
    assert (abs(times[y == 1] - 100) <= 5 * np.sqrt(400 * 0.25 * 0.75)).all()


def test_sets_do_not_depend_on_which_rows_stayed():
    """With one seed for both, entry k of the sets must not be likelier because row k stayed."""
    y = np.repeat([1, 0], 10000)
    rows = corrupt.long_tailed(y, 2, 0.2, seed=0)
    wrong = np.stack([y[rows] == 1, y[rows] == 0], axis=1)
    S = corrupt.uniform(y[rows], 2, 0.1, seed=0)
    rare = rows[y[rows] == 1]
    entries = S.ravel()[rare][wrong.ravel()[rare]]
    assert len(entries) > 900
    assert within_bound(entries, np.full(entries.shape, 0.1))


def test_memory_stays_near_the_result():
    n, num_classes = 50_000, 100
    y = np.random.default_rng(0).integers(num_classes, size=n)
    p = np.ones((n, num_classes), dtype=np.float32)
    for make in (
        lambda: corrupt.uniform(y, num_classes, 0.1, 0),
        lambda: corrupt.hierarchical(y, np.arange(num_classes) // 5, 0.1, 0),
        lambda: corrupt.uniform_superset(y, num_classes, 0),
        lambda: corrupt.label_dependent(y, num_classes, 0),
        lambda: corrupt.noisy(y, num_classes, 0.001, 0.9, 0),
        lambda: corrupt.instance_dependent_from(p, y, 0, 0.04),
    ):
        tracemalloc.start()
        try:
            S = make()
            assert tracemalloc.get_traced_memory()[1] < S.nbytes + 6e6
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("rate", [None, 0.8, 0.04])
def test_instance_dependent_follows_its_law(rate):
    p, y = probabilities(), labels()
    S = corrupt.instance_dependent_from(p, y, seed=3, rate=rate)
    P = literal_law(p, y, rate)
    assert S.dtype == bool
    assert S[np.arange(N), y].all()
    U = draws(3)
    assert np.array_equal(S, P > U)
    wrong = wrong_of(y)
    assert within_bound(S[wrong], P[wrong])


def test_text_form_always_adds_the_likeliest_wrong_label():
    p, y = probabilities(), labels()
    S = corrupt.instance_dependent_from(p, y, seed=0)
    assert S[np.arange(N), np.where(wrong_of(y), p, -1).argmax(axis=1)].all()
    assert (S.sum(axis=1) >= 2).all()


@pytest.mark.parametrize("rate", [None, 0.8])
def test_wrong_labels_without_probability(rate):
    y = labels(4)
    sure = np.eye(C)[y]
    assert np.array_equal(corrupt.instance_dependent_from(sure, y, seed=0, rate=rate), sure.astype(bool))
    tiny = np.where(sure > 0, 1.0, 5e-324)
    S = corrupt.instance_dependent_from(tiny, y, seed=0, rate=rate)
    assert np.array_equal(S, literal_law(tiny, y, rate) > draws(0, 4))


def test_seed_decides_and_inputs_stay():
    p, y = probabilities(50), labels(50)
    p_before, y_before = p.copy(), y.copy()
    for make in (
        lambda seed: corrupt.uniform(y, C, 0.5, seed),
        lambda seed: corrupt.hierarchical(y, GROUPS, 0.5, seed),
        lambda seed: corrupt.uniform_superset(y, C, seed),
        lambda seed: corrupt.label_dependent(y, C, seed),
        lambda seed: corrupt.noisy(y, C, 0.1, 0.9, seed),
        lambda seed: corrupt.noisy(y.astype(np.uint8), np.uint8(C), 0.1, 0.9, seed),
        lambda seed: corrupt.long_tailed(y, C, 0.1, seed),
        lambda seed: corrupt.instance_dependent_from(p, y, seed),
        lambda seed: corrupt.instance_dependent_from(p.astype(np.float32), y.tolist(), seed, rate=0.4),
    ):
        assert np.array_equal(make(1), make(1))
        assert not np.array_equal(make(1), make(2))
    assert np.array_equal(p, p_before)
    assert np.array_equal(y, y_before)


def test_the_network_behind_instance_dependent_sets_sees_the_scaling():
    y = np.arange(60) % 3
    X = (np.random.default_rng(0).integers(0, 160, (60, 4)) + 40 * y[:, None]).astype(np.uint8)

    def make(X, **scaling):
        return corrupt.instance_dependent(X, y, 3, 0, rate=0.4, recipe=Recipe(epochs=4), device="cpu", **scaling)

    scaled = make(X, shift=100, scale=0.01)
    assert np.array_equal(scaled, make((X - 100.0) * 0.01))
    assert not np.array_equal(scaled, make(X))
    assert np.array_equal(make(X), make(X.astype(float)))


def test_no_rows():
    none = np.zeros(0, dtype=int)
    for make, *_ in LITERAL.values():
        assert make(none, 0).shape == (0, C)
    assert corrupt.instance_dependent_from(np.ones((0, C)), none, 0).shape == (0, C)
    assert corrupt.long_tailed(none, C, 0.1, 0).shape == (0,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: corrupt.uniform([0, 3], 3, 0.1, 0), "row 1 has label 3; labels must be from 0 to 2"),
        (lambda: corrupt.uniform([-1, 1], 3, 0.1, 0), "row 0 has label -1"),
        (lambda: corrupt.uniform([0.0, 1.0], 3, 0.1, 0), "integer labels"),
        (lambda: corrupt.uniform([[0, 1]], 3, 0.1, 0), "integer labels"),
        (lambda: corrupt.uniform([0, 1], 3, 1.5, 0), "q is 1.5"),
        (lambda: corrupt.uniform([0, 1], 3, float("nan"), 0), "q is nan"),
        (lambda: corrupt.uniform([0, 1], 3.0, 0.1, 0), "num_classes is 3.0; it must be an integer of at least 1"),
        (lambda: corrupt.uniform([0, 1], 3, 0.1, None), "seed is None; it must be an integer of at least 0"),
        (lambda: corrupt.long_tailed([0, 1], 3, 0.1, -1), "seed is -1"),
        (lambda: corrupt.hierarchical([0, 2], [0, 1], 0.1, 0), "row 1 has label 2; labels must be from 0 to 1"),
        (lambda: corrupt.hierarchical([0, 1], [[0, 1]], 0.1, 0), r"superclasses has shape \(1, 2\)"),
        (lambda: corrupt.hierarchical([0, 1], [0.0, float("nan")], 0.1, 0), "pass one integer or name per class"),
        (lambda: corrupt.hierarchical([0, 1], [0, 1], -0.1, 0), "q is -0.1"),
        (lambda: corrupt.uniform_superset([0, 0], 1, 0), "num_classes is 1; it must be an integer of at least 2"),
        (lambda: corrupt.label_dependent([0, 1], 5, 0), "5 probabilities for 5 classes; pass at most 4"),
        (lambda: corrupt.label_dependent([0, 1], 5, 0, (0.5, 1.1)), "one of probabilities is 1.1"),
        (lambda: corrupt.noisy([0, 1], 3, 0.1, 1.5, 0), "eta is 1.5"),
        (lambda: corrupt.noisy([0, 1], 3, 2, 0.5, 0), "q is 2"),
        (lambda: corrupt.noisy([0, 1], 3, 0, 1, 0), "with q = 0.0 and eta = 1.0 nearly all rows are empty; raise q"),
        (lambda: corrupt.noisy([0, 1], 3, 1e-9, 1, 0), "nearly all rows are empty"),
        (lambda: corrupt.long_tailed([0, 1], 2, 0, 0), "rho is 0; it must be a number above 0 and at most 1"),
        (lambda: corrupt.long_tailed([0, 1], 2, 100, 0), "rho is 100"),
        (lambda: corrupt.long_tailed([0, 0], 1, 0.1, 0), "num_classes is 1"),
        (lambda: corrupt.long_tailed([0, 2], 2, 0.1, 0), "row 1 has label 2"),
        (lambda: corrupt.instance_dependent_from([["a", "b"]], [0], 0), "pass probabilities of shape"),
        (lambda: corrupt.instance_dependent_from([0.5, 0.5], [0], 0), r"p has shape \(2,\)"),
        (lambda: corrupt.instance_dependent_from([[0.5, 0.5]], [0, 1], 0), "p has 1 rows and y has 2"),
        (lambda: corrupt.instance_dependent_from([[0.5, 0.5], [2, -1]], [0, 1], 0), "row 1 of p"),
        (lambda: corrupt.instance_dependent_from([[0.5, np.nan]], [0], 0), "row 0 of p"),
        (lambda: corrupt.instance_dependent_from([[0.5, 0.5]], [0], 0, rate=0), "rate is 0"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
