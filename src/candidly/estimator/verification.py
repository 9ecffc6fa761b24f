"""Certified cleaning of a classifier's training rows: the hash of its rules, its ledger of plans, answers by name."""

import hashlib
import json
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.candidates.values import is_missing, plain
from candidly.checks import arguments
from candidly.cleaning import Budget
from candidly.cleaning.audit import NOT_CHECKED
from candidly.cleaning.certify import CANNOT_TELL, NONE_OF_THESE, VerificationPlan
from candidly.estimator.record import FitRecord
from candidly.messages import did_you_mean
from candidly.store.validation import instance, require

UNKNOWN = "cannot tell"
"""Text for an answer without a label; None, an empty text and ``?`` mean the same."""

NOT_A_CANDIDATE = "none of these"
"""Text for the answer that no candidate is the true label; the name of another class says more."""

_ADVICE = "pass a class name, 'none of these' if no candidate is right, or None if nobody can tell"


def fingerprint(record: FitRecord, budget: Budget) -> str:
    """Return a hash of the cleaning rules: 16 hexadecimal digits. `reclean` does not change it, another `fit` does."""
    pairs, facts = budget.parts()
    tensors = record.tensors() | pairs
    digest = hashlib.sha256(json.dumps([facts, [str(name) for name in record.candidates.classes]]).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].contiguous().numpy().data)
    return digest.hexdigest()[:16]


def read_ledger(facts: Any, n: int) -> tuple[VerificationPlan, ...]:
    """Return the plans of a saved model with n training rows; raise ValueError if they are damaged."""
    instance(list)(facts, "the ledger")
    plans = tuple(map(VerificationPlan.from_json, facts))
    require([one.number for one in plans] == list(range(1, len(plans) + 1)), "the order of the ledger", facts)
    require({one.n for one in plans} <= {n}, "the number of rows in the ledger", facts)
    return plans


def find_plan(ledger: Sequence[VerificationPlan], plan: VerificationPlan | None, family: str) -> VerificationPlan:
    """Return the plan to certify, by default the last one of the ledger; raise ValueError if it does not count."""
    if plan is None and not ledger:
        raise ValueError("no verification was planned; call plan_verification before any row is checked")
    found = ledger[-1] if plan is None else plan
    arguments.instance("plan", found, VerificationPlan, "what plan_verification returned")
    if found.family != family:
        raise ValueError(
            "plan belongs to another fit of the classifier, which removes candidates in another order, so its rows say "
            "nothing about this one; plan a new verification"
        )
    if found not in ledger:
        raise ValueError(
            "plan is not in ledger_, so it was not recorded before the first answer; save the model after "
            "plan_verification, and load that one"
        )
    return found


def read_answers(answers: Any, plan: VerificationPlan, classes: tuple[Hashable, ...]) -> dict[int, int]:
    """Return the number of each answer's class by row, or `CANNOT_TELL` or `NONE_OF_THESE`.

    Parameters
    ----------
    answers : mapping of int to name, or sequence of names
        By row of the table, or in the order of the plan's rows.
    plan : VerificationPlan
        The rows that were drawn.
    classes : tuple
        Class names.
    """
    if isinstance(answers, Mapping):
        named = {_row(row, plan.n): answer for row, answer in answers.items()}
    else:
        wanted = "a mapping from rows to class names, or a list with one for each row of the plan"
        given = list(arguments.items("answers", answers, wanted))
        if len(given) > plan.m or (len(given) < plan.m and not plan.sequential):
            raise ValueError(
                f"answers has {len(given)} entries, but the plan has {plan.m} rows; pass one for each of them, in the "
                "order of plan.rows, or a mapping from rows to class names"
            )
        named = dict(zip(plan.rows, given, strict=False))
    column = {name: j for j, name in enumerate(classes)}
    return {row: _number(answer, row, column) for row, answer in named.items()}


def read_checked(verified: Any, n: int, classes: tuple[Hashable, ...]) -> NDArray[np.int64]:
    """Return the class number of each of n rows that was checked, or why there is none, (n,).

    Parameters
    ----------
    verified : mapping of int to name, or sequence of names
        By row, None where nobody can tell; or one per row, None where it was not checked.
    n : int
        Number of rows.
    classes : tuple
        Class names.

    Returns
    -------
    ndarray of int, shape (n,)
        A class number, `NONE_OF_THESE`, `CANNOT_TELL`, or `NOT_CHECKED`.
    """
    if isinstance(verified, Mapping):
        named = {_row(row, n, "verified"): answer for row, answer in verified.items()}
    else:
        wanted = "a mapping from rows to class names, or a list with one per row, None where it was not checked"
        given = list(arguments.items("verified", verified, wanted))
        if len(given) != n:
            raise ValueError(
                f"verified has {len(given)} entries, but there are {n} rows; pass one per row, None where it was not "
                "checked, or a mapping from rows to class names"
            )
        named = {row: answer for row, answer in enumerate(map(plain, given)) if not is_missing(answer, blank=True)}
    if not named:
        raise ValueError("verified has no checked row; pass the true labels of some rows, drawn at random")
    column = {name: j for j, name in enumerate(classes)}
    found = np.full(n, NOT_CHECKED, dtype=np.int64)
    for row, answer in named.items():
        found[row] = _number(answer, row, column)
    return found


def plan_of(ledger: Sequence[VerificationPlan], rows: NDArray[np.intp], family: str) -> VerificationPlan | None:
    """Return the plan for these rules whose rows include all the given ones; None if there is none."""
    return next((one for one in ledger if one.family == family and set(rows.tolist()) <= set(one.rows)), None)


def _row(row: Any, n: int, what: str = "answers") -> int:
    found = plain(row)
    if type(found) is not int or not 0 <= found < n:
        raise ValueError(f"{what} has the row {arguments.shown(row)}; rows are numbers from 0 to {n - 1}")
    return found


def _number(answer: Any, row: int, column: Mapping[Hashable, int]) -> int:
    answer = plain(answer)
    if not isinstance(answer, Hashable):
        raise ValueError(f"the answer for row {row} is {arguments.shown(answer)}; {_ADVICE}")
    if answer in column:
        return column[answer]
    if is_missing(answer, blank=True):
        return CANNOT_TELL
    text = answer.strip().casefold() if isinstance(answer, str) else None
    if text in ("?", UNKNOWN):
        return CANNOT_TELL
    if text == NOT_A_CANDIDATE:
        return NONE_OF_THESE
    hint = did_you_mean(answer, [*column, UNKNOWN, NOT_A_CANDIDATE])
    raise ValueError(f"the answer for row {row} is {arguments.shown(answer)}, which is not a class{hint}; {_ADVICE}")
