"""Annotators disagree: from a table of votes to better labels and a classifier.

Run it with ``python examples/crowd_votes.py``. The items are handwritten digits. 400 of them have labels, each from
three of five annotators. The votes are synthetic, so that the results can be compared with the true labels.
"""

import numpy as np
from sklearn.datasets import load_digits

from candidly import PartialLabelClassifier, candidates

ACCURACY = {"ann": 0.95, "bob": 0.75, "cem": 0.70, "dana": 0.65, "eve": 0.30}
LOOK_ALIKES = {0: 6, 1: 7, 2: 3, 3: 8, 4: 9, 5: 6, 6: 5, 7: 1, 8: 3, 9: 4}  # what bob, cem and dana mistake digits for


def vote(true, worker, rng):
    """Return the label that an annotator gives; the errors of ann and eve are random."""
    if rng.random() < ACCURACY[worker]:
        return true
    return int(rng.integers(10)) if worker in ("ann", "eve") else LOOK_ALIKES[true]


def make_votes(y, rng):
    """Return the votes in long form, one row each, with the column names of Crowd-Kit."""
    table = {"task": [], "worker": [], "label": []}
    for item, true in enumerate(y.tolist()):
        for worker in rng.choice(list(ACCURACY), size=3, replace=False).tolist():
            table["task"].append(item)
            table["worker"].append(worker)
            table["label"].append(vote(true, worker, rng))
    return table


def take_majority(votes, rng):
    """Return the most voted label of each task; ties are broken at random."""
    best = (votes.counts + 0.5 * rng.random(votes.counts.shape)).argmax(1)
    return np.array(votes.candidates.classes)[best]


def show_disputed(votes, learner, y):
    """Print the results for a few items on which all three annotators differ."""
    print("\nitem   votes     kept      most probable   true")
    given, kept = votes.candidates.decode(), learner.candidates_.decode()
    for i in np.flatnonzero(votes.candidates.sizes == 3)[:8]:
        before, after = (", ".join(map(str, names)) for names in (given[i], kept[i]))
        best = f"{learner.transduction_[i]} ({learner.confidence_[i]:.2f})"
        print(f"{votes.tasks[i]:<7}{before:10}{after:10}{best:16}{y[i]}")


def main():
    """Compare learning from all votes with learning from the majority vote."""
    rng = np.random.default_rng(0)
    X, y = load_digits(return_X_y=True)
    rows = rng.permutation(len(y))
    X_train, y_train, X_test, y_test = X[rows[:400]], y[rows[:400]], X[rows[400:800]], y[rows[400:800]]

    votes = candidates.from_annotations(make_votes(y_train, rng))
    print(votes)
    for worker, agreement in zip(votes.workers, votes.agreement.workers, strict=True):
        print(f"  {worker} agrees with the majority of the others on {agreement:.0%} of the tasks")

    # Tasks are in the order of their first appearance in the table: bring the features into that order.
    tasks = list(votes.tasks)
    X_train, y_train = X_train[tasks], y_train[tasks]

    # Every label that an annotator gave is a candidate. Labels are chosen by the networks and by all votes; each vote
    # counts by how often its annotator is right.
    learner = PartialLabelClassifier(max_epochs=15, random_state=0)
    learner.fit(X_train, votes)

    # The usual alternative: take the majority vote, and train the same networks on one label per item.
    majority = take_majority(votes, rng)
    baseline = PartialLabelClassifier(max_epochs=15, random_state=0).fit(X_train, majority)

    print(f"\n{'':35}majority vote   all votes")
    labels = (majority == y_train).mean(), (learner.transduction_ == y_train).mean()
    print(f"{'right labels of the 400 items':35}{labels[0]:13.1%}{labels[1]:12.1%}")
    scores = (baseline.predict(X_test) == y_test).mean(), (learner.predict(X_test) == y_test).mean()
    print(f"{'right predictions of 400 new ones':35}{scores[0]:13.1%}{scores[1]:12.1%}")

    # For some items no annotator gave the true label. No method that chooses among the votes can be right there.
    given = [label in names for label, names in zip(y_train, votes.candidates.decode(), strict=True)]
    kept = [label in names for label, names in zip(y_train, learner.candidates_.decode(), strict=True)]
    print(f"\nthe true label is among the votes of {np.mean(given):.1%}, and among those kept of {np.mean(kept):.1%}")
    show_disputed(votes, learner, y_train)


if __name__ == "__main__":
    main()
