"""The audit: intervals that hold the truth, sets that lack true labels, and whom not to trust."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest
import torch

from candidly import metrics
from candidly.cleaning import certify, exact
from candidly.cleaning.audit import ALPHAS, ASSUMPTIONS, NOT_CHECKED, Audit, Doubt, Known, audit, format_guess
from candidly.cleaning.budget import Budget
from candidly.cleaning.estimates import estimate_error, estimate_lost, estimate_missing, predicts_by_chance, uninformed
from tests.cleaning.test_budget import paired, simulate

CLEAR = {"n": 1000, "C": 10, "spread": 8.0}  # about one in twenty most likely candidates is wrong
SETTINGS = {
    "few": {"rate": 0.1},
    "many": {"rate": 0.6},
    "too sure": {"sure": 1.5},
    "by pairs": {"wrong": "pairs"},
    "next class, too sure": {"wrong": "next", "sure": 1.5},
    "unequal classes": {"priors": tuple(0.7**k for k in range(10))},
}


def audited(z, S, **settings):
    return audit(z, S, Budget.of(z, S), **settings)


def truths(seed, **settings):
    z, S, y = simulate(seed, **settings)
    return audited(z, S, y=y).levels


def holds(level):
    return level.lost.low <= level.true_lost <= level.lost.high


@pytest.fixture(scope="module")
def cells():
    return {
        name: [level for seed in range(8) for level in truths(seed, **CLEAR | settings)]
        for name, settings in SETTINGS.items()
    }


@pytest.mark.parametrize("name", SETTINGS)
def test_intervals_hold_the_truth(name, cells):
    assert all(level.declined is None for level in cells[name])
    assert np.mean([holds(level) for level in cells[name]]) >= 0.85
    assert np.mean([level.removed.low <= level.true_removed <= level.removed.high for level in cells[name]]) >= 0.85


def test_intervals_are_useful(cells):
    levels = [level for some in cells.values() for level in some]
    assert np.median([level.lost.high - level.lost.low for level in levels]) <= 0.16
    assert np.median([level.removed.high - level.removed.low for level in levels]) <= 0.15


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8, 1.0])
def test_rows_that_networks_know_nothing_about_are_counted(share):
    """They know the label of a share of the rows and predict any class in the others, however sure they are."""
    generator = torch.Generator().manual_seed(0)
    y, other = torch.randint(6, (2, 4000), generator=generator)
    S = (torch.rand(4000, 6, generator=generator) < 0.3) | torch.nn.functional.one_hot(y, 6).bool()
    known = torch.arange(4000) < share * 4000
    top = torch.where(known, y, other)
    found = uninformed(top, S)
    assert float(found.mean()) == pytest.approx(1 - share, abs=0.04)
    assert (found[~metrics.contains(S, top)] == 1).all()
    full = torch.cat([S, torch.ones(1000, 6).bool()])  # unlabelled rows show nothing
    again = uninformed(torch.cat([top, other[:1000]]), full)
    assert torch.equal(again[:4000] == 1, found == 1)


def test_networks_that_are_sure_do_not_narrow_the_interval():
    S = torch.ones(500, 4).bool()
    q = torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(500, 4)
    kept = q > 0
    nothing, everything = torch.zeros(500).double(), torch.ones(500).double()
    assert estimate_lost(q, q, S, kept, nothing) == (0, 0, 0)
    assert estimate_lost(q, q, S, kept, everything).high == 1  # 1.5 times the three of four labels that chance loses
    some = estimate_lost(q, q, S, kept, 0.2 * everything)
    assert 0.2 * 0.75 * 1.5 < some.high < 0.2 * 0.75 * 1.5 + 0.05
    assert estimate_error(q, q, S, 0.2 * everything) == some
    few = kept.clone()
    few[50:] = True
    assert estimate_lost(q, q, S, few, everything).high == 0.1  # no other row lost a candidate


def test_intervals_hold_the_truth_in_hard_problems():
    levels = [level for seed in range(8) for level in truths(seed, n=1000)]
    assert np.mean([holds(level) for level in levels]) >= 0.85
    assert np.median([level.true_lost for level in levels]) > 0.05


def test_intervals_allow_for_more_than_chance():
    """Candidates that depend on the class make probabilities a little wrong, which many rows would show."""
    levels = [level for seed in range(6) for level in truths(seed, wrong="next", n=8000)]
    assert np.mean([holds(level) for level in levels]) >= 0.85
    by_chance = [1.645 * math.sqrt(level.lost.value * (1 - level.lost.value) / 8000) for level in levels]
    near = [abs(one.true_lost - one.lost.value) < width for one, width in zip(levels, by_chance, strict=True)]
    assert np.mean(near) < 0.85


def spoil(seed, noise, **settings):
    """Sets that lack the true label in a share of the rows, whose other candidates are as before."""
    z, S, y = simulate(seed, **settings)
    rows = torch.rand(len(S), generator=torch.Generator().manual_seed(seed)) < noise
    S = S & ~(torch.nn.functional.one_hot(y, S.shape[1]).bool() & rows[:, None])
    empty = ~S.any(1)
    S[empty, (y[empty] + 1) % S.shape[1]] = True
    return z, S, y


@pytest.mark.parametrize("settings", [CLEAR, CLEAR | {"sure": 1.5}, {"n": 1000}])
def test_missing_labels_are_found_and_clean_sets_are_not_called_noisy(settings):
    for seed in range(5):
        found = audited(*spoil(seed, 0.15, **settings)[:2], alphas=(0.05, 0.1))
        assert found.missing.low > 0.08
        assert all(level.declined is not None and level.lost is level.removed is None for level in found.levels)
        assert "the true label seems to be missing from" in found.levels[0].declined
        assert all(level.candidates > 0 for level in found.levels)
        assert any("sets look noisy" in line for line in found.words)
        clean = audited(*spoil(seed, 0.0, **settings)[:2], alphas=(0.05,))
        assert clean.missing.low <= 0.04
        assert not any("noisy" in line for line in clean.words)


def test_missing_labels_are_estimated_whatever_the_order():
    z, S, _ = spoil(0, 0.1, n=200)
    found, rng = estimate_missing(z, S), np.random.default_rng(0)
    rows, columns = rng.permutation(200), rng.permutation(4)
    assert estimate_missing(z[rows][:, columns], S[rows][:, columns]) == found
    assert 0 < found.low <= found.value <= found.high < 0.5


@pytest.mark.parametrize("C", [1, 2, 5])
def test_sets_that_say_nothing_lack_nothing(C):
    z = torch.randn(120, C, generator=torch.Generator().manual_seed(0))
    assert estimate_missing(z, torch.ones(120, C).bool()).value == 0
    found = audited(z, torch.ones(120, C).bool(), alphas=(0.05, 0.5))
    assert [level.declined for level in found.levels] == [None, None]
    for level in found.levels:
        for one in (level.lost, level.removed):
            assert 0 <= one.low <= one.value <= one.high <= 1


def test_single_candidates_have_nothing_to_lose():
    _, _, y = simulate(0, n=150)
    S = torch.nn.functional.one_hot(y, 4).bool()
    z = 5 * S.float()
    for level in audited(z, S, y=y).levels:
        assert (level.candidates, level.lost, level.removed) == (0, (0, 0, 0), (0, 0, 0))
        assert (level.true_lost, level.true_removed) == (0, 0)


def test_labels_change_no_estimate():
    z, S, y = simulate(0)
    told, untold = audited(z, S, y=y), audited(z, S)
    assert [level.alpha for level in told.levels] == list(ALPHAS)
    for one, other in zip(told.levels, untold.levels, strict=True):
        assert one.true_lost is not None
        assert (other.true_lost, other.true_removed) == (None, None)
        assert dataclasses.replace(one, true_lost=None, true_removed=None) == other
    assert told.known == Known(len(y), 0)
    assert dataclasses.replace(told, levels=untold.levels, known=None) == untold
    nobody = audited(z, S, y=torch.full_like(y, -1))
    assert nobody == untold


def test_levels_agree_with_the_rule():
    z, S, _ = simulate(3)
    given_z, given_S = z.clone(), S.clone()
    rule = Budget.of(z, S)
    found = audit(z, S, rule, alphas=(0.2, 0.02))
    assert [level.alpha for level in found.levels] == [0.02, 0.2]
    for level in found.levels:
        kept = rule.keep(z, S, level.alpha)
        assert level.candidates == int(S.sum() - kept.sum())
        assert level.lost == rule.lost(z, S, kept)
        for removed, lost in zip(level.removed, (level.lost.value, level.lost.high, level.lost.low), strict=True):
            assert removed == pytest.approx(min(max((level.candidates - 300 * lost) / int(S.sum() - 300), 0), 1))
    assert found.error.low <= rule.error <= found.error.high
    assert found.excess == rule.excess
    assert torch.equal(z, given_z)
    assert torch.equal(S, given_S)


def test_pairs_that_cannot_be_told_apart_are_named():
    z, S, _ = paired(0, 1.0)
    (pair,) = audited(z, S).pairs
    assert pair.numbers == (0, 1)
    T = Budget.of(z, S).temperature
    inside = (z / T).masked_fill(~S, -torch.inf).softmax(-1)
    assert pair.rows == pytest.approx(float(inside[S[:, 0] & S[:, 1], :2].sum()), rel=1e-5)
    assert "rows without the other" in pair.why
    assert any("cannot be told apart" in line for line in audited(z, S).words)
    assert audited(*paired(0, 0.0)[:2]).pairs == ()


def test_classes_that_cannot_be_trusted_are_named():
    """Class 3 is rare, and class 2 is likely only where class 0 is likelier."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(300) % 3
    y[:10] = 3
    z = 6 * torch.nn.functional.one_hot(y, 4).float() + 0.1 * torch.rand(300, 4, generator=generator)
    z[y == 2, 0] += 7.0
    S = torch.nn.functional.one_hot(y, 4).bool()
    S[y == 2, 0] = True
    found = {doubt.number: doubt for doubt in audited(z, S).classes}
    assert set(found) == {2, 3}
    assert found[3].rows == pytest.approx(10, abs=1)
    assert "too few to learn from" in found[3].why
    assert "look more like another class" in found[2].why


def test_words_say_whether_candidates_look_alike():
    alike, plain = audited(*simulate(0, "alike", n=1000)[:2]), audited(*simulate(0, n=1000)[:2])
    assert any("extra plausible candidates per row" in line for line in alike.words)
    assert not any("extra plausible" in line for line in plain.words)
    assert all(f"a guessed {format_guess(one.error)} of the rows" in one.words[1] for one in (alike, plain))


def test_words_say_how_many_rows_can_lose_a_label():
    z, S, y = simulate(0, n=300)[:3]
    S[:200] = torch.eye(S.shape[1]).bool()[y[:200]]
    ambiguous = int((S.sum(1) > 1).sum())
    assert audited(z, S).words[0].startswith(f"{ambiguous} of 300 rows have several candidates")


def test_everything_is_json():
    z, S, y = paired(0, 1.0)
    found = audited(z, S, y=y)
    plain = json.loads(json.dumps(found.to_json()))
    assert plain.keys() == {field.name for field in dataclasses.fields(Audit)} - {"class_names"}
    assert plain["levels"][2]["lost"] == list(found.levels[2].lost)
    assert plain["levels"][2]["true_lost"] == found.levels[2].true_lost
    assert plain["pairs"][0]["numbers"] == [0, 1]
    assert plain["missing"] == list(found.missing)
    declined = audited(*spoil(0, 0.3, **CLEAR)[:2], alphas=(0.05,)).to_json()["levels"][0]
    assert declined["lost"] is declined["removed"] is None


def test_a_printed_audit_shows_levels_advice_and_classes():
    z, S, y = paired(0, 1.0)
    plain = str(audited(z, S, alphas=(0.05, 0.2)))
    found = audit(z, S, Budget.of(z, S), alphas=(0.05, 0.2), y=y, class_names=["wren", "robin\x1b[31m", "jay", 4])
    lines = found.lines()
    assert lines[0] == f"not verified: check {found.levels[0].check} rows to certify alpha 0.05 (candidly verify plan)"
    heads = ["alpha", "true labels lost (guess)", "actual", "wrong candidates removed (guess)", "actual"]
    assert re.split(r"\s{2,}", lines[1]) == [*heads, "candidates removed", "rows to check"]
    for level, line in zip(found.levels, lines[2:4], strict=True):
        mark, lost, true_lost, removed, true_removed, candidates, check = re.split(r"\s{2,}", line)
        assert (mark, int(candidates), int(check)) == (f"{level.alpha:g}", level.candidates, level.check)
        assert (lost, removed) == (format_guess(level.lost), format_guess(level.removed))
        assert (true_lost, true_removed) == (f"{level.true_lost:.1%}", f"{level.true_removed:.1%}")
    assert ASSUMPTIONS in lines
    assert set(found.words) < set(lines)
    assert any(line.startswith("  wren and robin") and "\x1b" not in line for line in lines)
    assert "actual" not in plain
    assert "class 0 and class 1: one of them" in plain
    printed = str(found).splitlines()
    assert printed[:4] == lines[:4]  # the table is not wrapped
    assert all(len(line) < 80 for line in printed[4:])
    assert " ".join(" ".join(printed[4:]).split()) == " ".join(" ".join(lines[4:]).split())


def test_a_printed_audit_says_why_there_is_no_estimate():
    found = audited(*spoil(0, 0.3, **CLEAR)[:2], alphas=(0.05, 0.2))
    lines = found.lines()
    assert re.split(r"\s{2,}", lines[2])[1:3] == ["–", "–"]
    assert [line for line in lines if line.startswith("No guess")] == [f"No guess: {found.levels[0].declined}."]


def test_a_printed_audit_lists_a_few_of_many_classes():
    doubts = tuple(Doubt(k, 5.0, "why") for k in range(13))
    lines = str(
        dataclasses.replace(audited(*simulate(0)[:2]), classes=doubts, class_names=("x" * 50,) * 13)
    ).splitlines()
    assert lines[-2:] == [f"  {'x' * 39}…: why", "  … and 3 more"]


def test_predictions_at_chance_are_declined():
    z, S, _ = simulate(0)
    shuffled = z[torch.randperm(len(z), generator=torch.Generator().manual_seed(0))]
    assert not predicts_by_chance(z, S)
    assert predicts_by_chance(shuffled, S)
    found = audited(shuffled, S)
    assert all(level.lost is None and "no better than chance" in level.declined for level in found.levels)


def test_chance_is_judged_by_labelled_rows():
    z, S, _ = simulate(0)
    assert not predicts_by_chance(z, torch.ones_like(S))
    unlabelled = torch.cat([S, torch.ones_like(S)])
    assert not predicts_by_chance(torch.cat([z, z.flip(0)]), unlabelled)


def test_rows_to_check_are_those_that_a_certificate_needs():
    z, S, _ = simulate(0, n=1000)
    rule = Budget.of(z, S)
    for level in audit(z, S, rule, alphas=(0.02, 0.05, 0.1)).levels:
        rows = certify.use_levels(rule.levels(z, S), level.alpha).isfinite().any(1).sum().item()
        allowed = exact.count_allowed(1000, level.alpha)
        assert exact.p_value(0, rows, allowed, level.check) <= 0.1 < exact.p_value(0, rows, allowed, level.check - 1)
    assert audit(z, S, rule, alphas=(0.05,), n=2000).levels[0].check < audit(z, S, rule, alphas=(0.05,)).levels[0].check
    single = torch.nn.functional.one_hot(S.long().argmax(1), S.shape[1]).bool()
    nothing = audit(z, single, Budget.of(z, single), alphas=(0.05,))
    assert nothing.levels[0].check is None
    assert nothing.status() == "not verified: at alpha 0.05 there is nothing to certify, too few rows can change"


def checked(y, rows):
    found = torch.full_like(y, NOT_CHECKED)
    found[rows] = y[rows]
    return found


def test_verified_intervals_hold_the_truth():
    """They are conservative, also if only rows with several candidates are drawn; the miss rate is at most 10 %."""
    z, S, y = simulate(0, n=400)
    rule, rng = Budget.of(z, S), np.random.default_rng(0)
    actual = [level.true_lost for level in audit(z, S, rule, alphas=(0.05, 0.3), y=y).levels]
    several = np.flatnonzero((S.sum(1) > 1).numpy())
    for population in (np.arange(400), several):
        held = []
        for _ in range(100):
            rows = torch.from_numpy(rng.choice(population, 100, replace=False))
            found = audit(z, S, rule, alphas=(0.05, 0.3), verified=checked(y, rows))
            held.append(
                [one.verified.low <= true <= one.verified.high for one, true in zip(found.levels, actual, strict=True)]
            )
            assert found.verified.population == len(population)
        assert np.mean(held) >= 0.9


def test_all_rows_checked_leave_no_doubt():
    z, S, y = spoil(0, 0.1, n=300)
    rule = Budget.of(z, S)
    for level in audit(z, S, rule, y=y, verified=y).levels:
        assert level.verified == pytest.approx((level.true_lost,) * 3)
    found = audit(z, S, rule, y=y, verified=y)
    outside = int((~S.gather(1, y[:, None])).sum())
    assert outside > 0
    assert found.known == Known(300, outside)
    assert (found.verified.rows, found.verified.outside, found.verified.unanswered) == (300, outside, 0)
    assert found.verified.missing == pytest.approx((outside / 300,) * 3)


def test_unanswered_rows_widen_verified_intervals_on_both_sides():
    z, S, y = simulate(0, n=300)
    rule, rows = Budget.of(z, S), torch.arange(0, 300, 2)
    answered = checked(y, rows)
    partly = answered.clone()
    partly[rows[::5]] = certify.CANNOT_TELL
    for one, other in zip(
        audit(z, S, rule, verified=answered).levels, audit(z, S, rule, verified=partly).levels, strict=True
    ):
        assert other.verified.low <= one.verified.low
        assert other.verified.high >= one.verified.high
        assert one.lost == other.lost
    assert audit(z, S, rule, verified=partly).verified.unanswered == 30


def test_a_verified_audit_says_what_was_checked():
    z, S, y = spoil(0, 0.05, n=300)
    found = audited(z, S, y=y, verified=checked(y, torch.arange(0, 300, 3)), alphas=(0.05,))
    lines = found.lines()
    assert lines[0] == "verified with 100 rows that were checked by hand"
    assert re.split(r"\s{2,}", lines[1])[1:4] == ["true labels lost (guess)", "verified", "actual"]
    low, high = found.levels[0].verified[1:]
    assert f"({100 * low:.1f} to {high:.1%})" in lines[2]
    text = " ".join(lines)
    assert f"In {found.known.outside} of them it is not a candidate, so it cannot be lost." in text
    assert "if these were drawn at random and not chosen" in text
    assert Audit.from_json(json.loads(json.dumps(found.to_json()))) == found
