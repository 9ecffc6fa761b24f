"""Draw docs/images/before-after.png, the picture of the README, from the README's example.

Run it with ``python docs/images/before_after.py``. It shows the first rows that have at least three candidates, without
choosing among them.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from candidly import PartialLabelClassifier, corrupt

SHOWN, WIDTH = 6, 0.14
TEXT, FAINT, TRUE, WRONG = "#24292f", "#57606a", "#1a7f37", "#c4341d"


def main():
    """Train as the README does, and draw what became of some rows."""
    X, y = load_digits(return_X_y=True)
    S = corrupt.uniform(y, num_classes=10, q=0.3, seed=0)
    X, _, S, _, y, _ = train_test_split(X, S, y, test_size=400, random_state=0)
    kept = PartialLabelClassifier(max_epochs=20, random_state=0).fit(X, S).candidates_.matrix
    rows = np.flatnonzero(S.sum(1) >= 3)[:SHOWN]

    figure = Figure(figsize=(8, 3), dpi=150, facecolor="white")
    for height, words in ((0.68, "training\nrow"), (0.345, "candidates"), (0.12, "cleaned")):
        figure.text(0.012, height, words, size=14, color=FAINT, va="center", linespacing=1.3)
    for place, row in enumerate(rows):
        left = 0.165 + place * WIDTH
        image = figure.add_axes((left, 0.47, WIDTH - 0.03, 0.47))
        image.imshow(X[row].reshape(8, 8), cmap="gray_r", interpolation="nearest")
        image.axis("off")
        middle = left + WIDTH / 2 - 0.015
        candidates, labels = " ".join(map(str, np.flatnonzero(S[row]))), np.flatnonzero(kept[row])
        figure.text(middle, 0.345, candidates, size=16, color=TEXT, ha="center", va="center")
        for number, label in enumerate(labels):
            x, colour = middle + 0.04 * (number - (len(labels) - 1) / 2), TRUE if label == y[row] else WRONG
            figure.text(x, 0.12, str(label), size=28, color=colour, weight="bold", ha="center", va="center")
    path = Path(__file__).with_name("before-after.png")
    figure.savefig(path, metadata={"Software": None})
    print(f"{path}: {SHOWN} rows, {S[rows].sum()} candidates before and {kept[rows].sum()} after")


if __name__ == "__main__":
    main()
