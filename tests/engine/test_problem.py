"""The border: bad input is refused with a message that names it; scaling and random streams."""

import dataclasses
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from candidly.candidates import encode
from candidly.engine.batches import scaled
from candidly.engine.building import builder
from candidly.engine.description import fingerprint
from candidly.engine.fitting import fit
from candidly.engine.problem import Problem, stream
from candidly.engine.recipe import Recipe
from candidly.methods import METHODS, Proden

X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 5.0], [3.0, 2.0]])
S = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1]], dtype=bool)


def replaced(array, place, value):
    changed = array.astype(float) if isinstance(value, float) else array.copy()
    changed[place] = value
    return changed


BAD = {
    "empty candidate row": ({"S": replaced(S, 2, False)}, "row 2 has no candidates"),
    "empty row of one run": ({"S": np.stack([S, replaced(S, 1, False)]), "seeds": [0, 1]}, "row 1 has no candidates"),
    "more rows in X": ({"X": np.zeros((5, 2))}, "X has 5 rows but S has 4"),
    "fewer rows in X": ({"X": X[:3]}, "X has 3 rows but S has 4"),
    "more runs in S": ({"S": np.stack([S, S, S]), "seeds": [0, 1]}, "S holds sets for 3 runs but there are 2 seeds"),
    "more runs in rows": ({"rows": [[0, 1], [2, 3]], "seeds": [0]}, "rows lists 2 runs but there are 1 seeds"),
    "fewer runs in rows": ({"rows": [[0, 1]], "seeds": [0, 1]}, "rows lists 1 runs but there are 2 seeds"),
    "no runs": ({"seeds": []}, "seed"),
    "short y": ({"y": [0, 1, 2]}, r"y has shape \(3,\) but X has 4 rows"),
    "y matrix": ({"y": np.zeros((4, 3), int)}, r"y has shape \(4, 3\) but X has 4 rows"),
    "y too large": ({"y": [0, 1, 2, 3]}, "y goes from 0 to 3; classes are 0 to 2"),
    "y negative": ({"y": [-1, 1, 2, 2]}, "y goes from -1 to 2; classes are 0 to 2"),
    "y no integers": ({"y": [0.5, 1.0, 2.0, 2.0]}, "y"),
    "more class names": ({"classes": list("abcd")}, "4 class names were given but S has 3 columns"),
    "fewer class names": ({"classes": ["a", "b"]}, "2 class names were given but S has 3 columns"),
    "class named twice": ({"classes": ["a", "b", "a"]}, "'a'"),
    "nan": ({"X": replaced(X, (2, 1), np.nan)}, "X has nan in row 2, column 1"),
    "inf": ({"X": replaced(X, (3, 0), np.inf)}, "X has inf in row 3, column 0"),
    "minus inf": ({"X": replaced(X, (0, 0), -np.inf)}, "X has -inf in row 0, column 0"),
    "nan in an image": ({"X": replaced(np.zeros((4, 1, 2, 2)), (1, 0, 1, 0), np.nan)}, "X has nan in row 1, column 2"),
    "too large for the precision": ({"X": replaced(X, (1, 1), 1e200)}, "row 1, column 1"),
    "flat X": (
        {"X": np.arange(4.0)},
        r"at least two axes \(rows, features\); reshape a single feature with X\[:, None\]",
    ),
    "one class": ({"S": np.ones((4, 1), bool)}, "number of classes is 1"),
    "no rows": ({"X": X[:0], "S": S[:0]}, "no rows"),
    "flat S": ({"S": np.ones(4, bool)}, r"shape \(4,\)"),
    "four axes in S": ({"S": S[None, None]}, r"shape \(1, 1, 4, 3\)"),
    "numbers in S": ({"S": S.astype(int) * 2}, "dtype int64"),
    "weights in S": ({"S": S / 2}, "dtype float64"),
    "row too large": ({"rows": [[0, 4]]}, "training rows go from 0 to 4 but X has rows 0 to 3"),
    "negative row": ({"rows": [[-1, 2]]}, "training rows go from -1 to 2 but X has rows 0 to 3"),
    "row listed twice": ({"rows": [[3, 0, 3]]}, "row 3 is listed twice"),
    "one training row": ({"rows": [[2]]}, "a run has 1 training rows"),
    "no training rows": ({"rows": [[]]}, "a run has 0 training rows"),
    "one training row in the second run": ({"rows": [[0, 1], [2]], "seeds": [0, 1]}, "a run has 1 training rows"),
    "one row in all": ({"X": X[:1], "S": S[:1]}, "1 training rows"),
    "rows without runs": ({"rows": [0, 1, 2]}, "rows"),
    "fractional rows": ({"rows": [[0.0, 1.5]]}, "rows"),
    "rows as a mask": ({"rows": [[True, False]]}, "rows"),
    "negative seed": ({"seeds": [-1]}, "-1"),
    "fractional seed": ({"seeds": [0.5]}, "0.5"),
    "text in X": ({"X": X.astype(str)}, "X"),
    "standardised twice": ({"shift": 1, "standardise": True}, "standardise=True computes shift and scale; leave them"),
    "scaled twice": ({"scale": [2.0], "standardise": True}, "standardise=True computes shift and scale"),
    "long shift": ({"shift": [1, 2, 3]}, r"shift has shape \(3,\) but a row of X \(2,\); give numbers that broadcast"),
    "shift with rows": ({"shift": [[1, 2]]}, r"shift has shape \(1, 2\) but a row of X \(2,\)"),
    "no scale": ({"scale": []}, r"scale has shape \(0,\)"),
    "nan in shift": ({"shift": [0, np.nan]}, "shift contains nan; pass finite numbers"),
    "infinite scale": ({"scale": np.inf}, "scale contains inf"),
    "scale too large for the precision": ({"scale": 1e200}, "scale contains inf"),
    "text in scale": ({"scale": ["a", "b"]}, "scale has dtype <U1; pass numbers"),
}


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_refused_and_named(changes, message):
    with pytest.raises(ValueError, match=message):
        Problem.of(**({"X": X, "S": S} | changes))


def test_good_input_is_taken():
    """Otherwise the table above would prove little."""
    names = ["a", "b", "c"]
    good = [{}, {"seeds": [0, 1]}, {"rows": [[3, 0]]}, {"y": [0, 1, 2, 2]}, {"classes": names}, {"S": S[None]}]
    for changes in [*good, {"shift": 1}, {"scale": [2.0]}, {"shift": [1, 2], "scale": torch.ones(2)}]:
        taken = Problem.of(**({"X": X, "S": S} | changes))
        assert (len(taken.X), taken.num_classes) == (4, 3)


def test_rows_that_all_have_the_same_candidates_warn():
    with pytest.warns(UserWarning, match="all 4 rows have the same candidates"):
        Problem.of(X, np.repeat(S[1:2], 4, 0))


@given(row=st.integers(0, 29), column=st.integers(0, 3), value=st.sampled_from([np.nan, np.inf, -np.inf]))
def test_the_first_bad_number_is_named(row, column, value):
    features = np.zeros((30, 4))
    features[row, column] = features[29, 3] = value
    sets = np.eye(3, dtype=bool)[np.arange(30) % 3]
    with pytest.raises(ValueError, match=re.escape(f"X has {value} in row {row}, column {column};")):
        Problem.of(features, sets)


@given(row=st.integers(0, 29))
def test_the_first_empty_row_is_named(row):
    sets = np.eye(3, dtype=bool)[np.arange(30) % 3]
    sets[row] = False
    with pytest.raises(ValueError, match=f"row {row} has no candidates"):
        Problem.of(np.zeros((30, 1)), sets)


def test_input_is_copied_and_converted():
    features, sets, rows, y = X.copy(), S.copy(), np.array([3, 0, 2]), np.array([0, 1, 2, 2])
    problem = Problem.of(features, sets, rows=[rows], y=y)
    assert problem.X.dtype == torch.float32
    assert problem.rows[0].tolist() == [0, 2, 3]
    assert problem.classes == (0, 1, 2)
    held = problem.X.clone(), problem.S.clone(), problem.rows[0].clone(), problem.y.clone()
    features += 1
    sets ^= True
    rows[:] = 1
    y[:] = 0
    now = problem.X, problem.S, problem.rows[0], problem.y
    assert all(torch.equal(a, b) for a, b in zip(held, now, strict=True))
    assert Problem.of(X, S, dtype=torch.float64).X.dtype == torch.float64


@pytest.fixture
def always_warning():
    """Let torch repeat warnings that it gives once per process."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


@pytest.mark.usefixtures("always_warning")
@pytest.mark.parametrize("name", ["X", "S", "y", "rows", "new X"])
def test_read_only_input_is_no_reason_to_warn(name):
    """Memory maps are read-only, and torch warns when it shares memory with such an array."""
    arrays = {"X": X.copy(), "S": S.copy(), "y": np.array([0, 1, 2, 2]), "rows": np.arange(4), "new X": X.copy()}
    arrays[name].setflags(write=False)
    problem = Problem.of(arrays["X"], arrays["S"], y=arrays["y"], rows=[arrays["rows"]])
    model = fit(problem, Proden(), recipe=Recipe(epochs=1), net="linear", device="cpu", progress=False)
    assert model.predict(arrays["new X"]).shape == (1, 4, 3)


def test_tensors_are_taken_as_arrays_are():
    y, rows = np.array([0, 1, 2, 2]), np.array([3, 0, 2])
    given = {"X": X, "S": S, "y": y}
    tensors = {key: torch.from_numpy(value) for key, value in given.items()}
    problem = Problem.of(**tensors, rows=[torch.from_numpy(rows)])
    expected = Problem.of(**given, rows=[rows])
    assert problem.X.data_ptr() != torch.from_numpy(X).data_ptr()
    assert all(torch.equal(getattr(problem, key), getattr(expected, key)) for key in given)
    assert torch.equal(problem.rows[0], expected.rows[0])


def test_candidates_bring_their_class_names():
    sets = encode([{"ant"}, {"ant", "bee"}, {"bee", "cat"}, {"cat"}])
    assert Problem.of(X, sets).classes == ("ant", "bee", "cat")
    assert Problem.of(X, sets, classes=["a", "b", "c"]).classes == ("a", "b", "c")
    assert torch.equal(Problem.of(X, sets).S, torch.from_numpy(S))


@pytest.mark.parametrize("form", [np.array, list, tuple])
def test_class_names_from_an_array_can_be_saved(form, tmp_path):
    problem = Problem.of(X, S, classes=form(np.array([3, 5, 8])))
    model = fit(problem, Proden(), recipe=Recipe(epochs=1), net="linear", device="cpu", progress=False)
    model.save(tmp_path)
    assert type(model).load(tmp_path).problem.classes == (3, 5, 8)


def test_class_names_may_be_tuples():
    names = (("animal", "ant"), ("animal", "bee"), ("plant", "fern"))
    assert Problem.of(X, S, classes=names).classes == names


def test_views_on_the_runs():
    problem = Problem.of(X, S, rows=[[0, 1], [1, 2, 3]], seeds=[4, 5], y=[0, 1, 2, 2])
    assert (problem.runs, problem.num_classes) == (2, 3)
    assert problem.training_mask.tolist() == [[True, True, False, False], [False, True, True, True]]
    assert torch.equal(problem.sets, torch.from_numpy(np.stack([S, S])))
    own = Problem.of(X, np.stack([S, ~S]), seeds=[4, 5])
    assert torch.equal(own.sets, torch.from_numpy(np.stack([S, ~S])))
    empty = problem.without_rows()
    assert len(empty.X) == empty.S.shape[-2] == 0
    assert empty.y is None
    assert (empty.X.shape[1:], empty.num_classes, empty.seeds) == (problem.X.shape[1:], 3, (4, 5))


def test_a_stream_depends_on_its_arguments_alone():
    def draw(*key):
        return torch.rand(8, generator=stream(*key))

    state = torch.get_rng_state()
    keys = [(seed, purpose, index) for seed in (0, 1) for purpose in ("order", "noise") for index in range(3)]
    first = [draw(*key) for key in keys]
    assert torch.equal(torch.get_rng_state(), state)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        assert all(torch.equal(draw(*key), old) for key, old in zip(keys, first, strict=True))
    different = {tuple(values.tolist()) for values in first}
    assert len(different) == len(keys)


def test_a_streams_numbers_never_change():
    """They are part of the promise that the same seed and device give the same bits."""
    words = [stream(seed, "network", 1).initial_seed() for seed in range(200)]
    assert len(set(words)) == 200
    assert words[:2] == [2122545592250308646, 8500753011714785339]


@given(
    features=hnp.arrays(np.float64, (12, 3), elements=st.integers(-50, 50).map(float)),
    rows=st.sets(st.integers(0, 11), min_size=2),
)
@settings(max_examples=40)
def test_every_run_is_standardised_over_its_own_training_rows(features, rows):
    sets = np.eye(3, dtype=bool)[np.arange(12) % 3]
    runs = [sorted(rows), list(range(12))]
    problem = Problem.of(features, sets, rows=runs, seeds=[0, 1], standardise=True, dtype=torch.float64)
    seen = scaled(problem.X.expand(2, -1, -1), problem)
    for run, own in enumerate(runs):
        inside, spread = seen[run, own].numpy(), features[own].std(0)
        np.testing.assert_allclose(inside.mean(0), 0, atol=1e-9)
        np.testing.assert_allclose(inside.std(0), spread > 0, atol=1e-9)
    outside = [row for row in range(12) if row not in rows]
    changed = features.copy()
    changed[outside] += 1000
    other = Problem.of(changed, sets, rows=runs, seeds=[0, 1], standardise=True, dtype=torch.float64)
    assert torch.equal(other.shift[0], problem.shift[0])
    assert torch.equal(other.scale[0], problem.scale[0])
    assert not outside or not torch.equal(other.shift[1], problem.shift[1])


@given(value=st.floats(-1e6, 1e6), n=st.integers(2, 3000))
@settings(max_examples=60)
def test_a_constant_feature_is_not_blown_up(value, n):
    """Rounding must not turn a spread of nothing into a divisor."""
    features = np.stack([np.full(n, value), np.arange(n)], 1)
    problem = Problem.of(features, np.eye(2, dtype=bool)[np.arange(n) % 2], standardise=True)
    assert problem.scale[0, 0, 0] == 1
    assert scaled(problem.X[None], problem)[..., 0].abs().max() <= 1e-6 * abs(value)


def test_images_are_standardised_by_pixel():
    images = np.random.default_rng(0).normal(3, 2, (4, 1, 2, 2))
    problem = Problem.of(images, S, seeds=[0, 1], standardise=True)
    assert problem.shift.shape == problem.scale.shape == (2, 1, 1, 2, 2)
    seen = scaled(problem.X.expand(2, *problem.X.shape), problem)
    torch.testing.assert_close(seen.mean(1), torch.zeros(2, 1, 2, 2), atol=1e-5, rtol=0)
    torch.testing.assert_close(seen.std(1, unbiased=False), torch.ones(2, 1, 2, 2), atol=1e-4, rtol=0)


def test_bytes_stay_bytes():
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 2, 2), dtype=np.uint8)
    problem = Problem.of(images, S)
    assert (problem.X.dtype, problem.dtype) == (torch.uint8, torch.float32)
    assert problem.to(torch.device("cpu")).X.dtype == problem.without_rows().X.dtype == torch.uint8
    assert problem.features.dtype == scaled(problem.X[None], problem).dtype == torch.float32
    assert torch.equal(scaled(problem.X[None], problem)[0], torch.from_numpy(images).float())
    assert torch.equal(problem.X, torch.from_numpy(images))
    assert Problem.of(torch.from_numpy(images), S).X.dtype == torch.uint8


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.uint16, np.bool_, np.float16, np.float64])
def test_other_numbers_are_converted(kind):
    assert Problem.of(X.astype(kind), S).X.dtype == torch.float32


def test_bytes_become_another_precision():
    problem = Problem.of(X.astype(np.uint8), S, dtype=torch.float64)
    assert problem.X.dtype == problem.dtype == problem.new_zeros(1).dtype == torch.float64


def test_zeros_are_of_the_networks_precision():
    problem = Problem.of(X.astype(np.uint8), S)
    assert problem.new_zeros(2, 3).dtype == torch.float32
    assert problem.new_zeros(torch.Size([2, 3])).shape == problem.new_zeros(2, 3).shape == (2, 3)
    assert problem.new_zeros(2, dtype=torch.int64).dtype == torch.int64
    assert not problem.new_zeros(2, 3).any()


@pytest.mark.parametrize("kind", [np.uint8, np.float64])
@pytest.mark.parametrize("shape", [(), (1,), (2,), (3, 1, 1), (1, 2, 2), (3, 2, 2)], ids=str)
def test_a_given_shift_and_scale_are_every_runs(kind, shape):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (4, 3, 2, 2)).astype(kind)
    shift, scale = rng.normal(100, 20, shape), rng.normal(0.1, 0.01, shape)
    problem = Problem.of(images, S, seeds=[0, 1], shift=shift, scale=scale)
    assert problem.shift.shape[:2] == problem.scale.shape[:2] == (2, 1)
    assert problem.shift.ndim == problem.X.ndim + 1
    assert (problem.shift.dtype, problem.standardised) == (torch.float32, False)
    seen = scaled(problem.X.expand(2, *problem.X.shape), problem)
    assert (seen.dtype, seen.shape) == (torch.float32, (2, 4, 3, 2, 2))
    # Numbers of up to 255 lose 2**-24 of themselves when the shift is rounded and when it is taken off.
    expected = torch.from_numpy((images - shift) * scale).float()
    torch.testing.assert_close(seen, expected.expand_as(seen), rtol=1e-6, atol=3 * 2**-24 * 255 * 0.15)
    assert torch.equal(problem.features, seen[0])


def test_shift_and_scale_alone():
    shifted, stretched = Problem.of(X, S, shift=[1, 2]), Problem.of(X, S, scale=2)
    assert torch.equal(scaled(shifted.X[None], shifted)[0], torch.from_numpy(X - [1, 2]).float())
    assert torch.equal(scaled(stretched.X[None], stretched)[0], torch.from_numpy(X * 2).float())


def test_bytes_are_standardised_as_numbers_are():
    table = np.random.default_rng(0).integers(0, 256, (4, 3), dtype=np.uint8)
    rows = {"rows": [[0, 1, 2], [1, 2, 3]], "seeds": [0, 1], "standardise": True}
    stored, numbers = Problem.of(table, S, **rows), Problem.of(table.astype(float), S, **rows)
    assert stored.X.dtype == torch.uint8
    assert torch.equal(stored.shift, numbers.shift)
    assert torch.equal(stored.scale, numbers.scale)
    views = [scaled(one.X.expand(2, 4, 3), one) for one in (stored, numbers)]
    assert torch.equal(*views)
    assert stored.standardised
    assert torch.equal(stored.features, numbers.X), "features are shared, and standardisation is each run's own"


def test_a_problem_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Problem.of(X, S).seeds = (1,)


def test_weights_are_where_methods_start():
    S = np.array([[True, True, False], [True, True, True], [True, False, True], [False, True, True]])
    votes = np.array([[3, 1, 5], [0, 0, 0], [2, 7, 2], [0, 0, 4]])
    problem = Problem.of(np.zeros((4, 2)), S, weights=votes, seeds=[0, 1])
    expected = torch.tensor([[0.75, 0.25, 0], [1 / 3] * 3, [0.5, 0, 0.5], [0, 0, 1]])  # where nothing counts, all do
    assert torch.allclose(problem.initial_weights, expected.expand(2, -1, -1))
    for name, weights in (("proden", "q"), ("rc", "q"), ("cavl", "q"), ("pop", "q"), ("valen", "od")):
        method = METHODS[name]()
        method.setup(problem, builder(problem, "mlp"))
        for weight in weights:
            assert torch.allclose(getattr(method, weight), problem.initial_weights), name
    equal = Problem.of(np.zeros((4, 2)), S)
    assert torch.allclose(equal.initial_weights[0], torch.as_tensor(S / S.sum(1, keepdims=True), dtype=torch.float32))


@pytest.mark.parametrize("scale", [1e-300, 1e-44, 1e39, 1e300])
def test_only_the_ratios_of_weights_count(scale):
    votes = np.array([[3.0, 1.0, 0.0], [1.0, 1.0, 2.0]])
    sets = [[True, True, False], [True, True, True]]
    plain, scaled = (
        Problem.of(np.zeros((2, 1)), sets, weights=votes * factor).initial_weights for factor in (1, scale)
    )
    assert torch.allclose(plain, scaled, rtol=1e-5)


def test_weights_change_what_is_learned():
    rng = np.random.default_rng(0)
    X, S = rng.normal(size=(40, 3)), np.ones((40, 3), dtype=bool)
    S[:20, 2] = False
    votes = np.zeros((40, 3))
    votes[np.arange(40), np.arange(40) % 2] = 1
    recipe = Recipe(epochs=2, batch_size=20)
    plain, trusting = (
        fit(Problem.of(X, S, weights=weights), Proden(), None, recipe, device="cpu").predict(X)
        for weights in (None, votes)
    )
    assert not torch.allclose(plain, trusting, atol=1e-3)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones((3, 3)), r"weights has shape \(3, 3\), but there are 3 rows and 2 classes"),
        (np.ones(3), r"weights has shape \(3,\)"),
        ([[1, 1], [1, -1], [1, 1]], r"weights has -1.0 in row 1, column 1; give finite, non-negative numbers"),
        ([[1, 1], [1, 1], [np.nan, 1]], "weights has nan in row 2, column 0"),
        ([["a", "b"]] * 3, "weights has dtype"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        Problem.of(np.zeros((3, 1)), [[True, False], [True, True], [False, True]], weights=weights)


def test_groups_are_numbers_one_per_row():
    X, S = np.zeros((3, 1)), np.eye(3, dtype=bool)
    problem = Problem.of(X, S, groups=np.array([1, 1, 2], np.uint8))
    assert problem.groups.tolist() == [1, 1, 2]
    assert problem.groups.dtype == torch.int64
    assert problem.without_rows().groups is None
    assert fingerprint(problem) != fingerprint(Problem.of(X, S)), "they may decide which rows train"
    for wrong in ([1, 2], ["a", "a", "b"], [0.5, 1, 2], [[1], [1], [2]]):
        with pytest.raises(ValueError, match="groups has dtype"):
            Problem.of(X, S, groups=wrong)
