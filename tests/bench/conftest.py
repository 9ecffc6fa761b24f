import numpy as np
import pytest


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    """A CSV file with candidate sets and true labels: 60 separable rows, 3 classes."""
    generator = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = generator.normal(size=(60, 4)) + 3 * np.eye(3, 4)[y]
    lines = ["a,b,c,d,candidates,label"]
    for row, label in zip(X, y, strict=True):
        other = generator.choice([name for j, name in enumerate("xyz") if j != label])
        names = "|".join(sorted({"xyz"[label], other} if generator.random() < 0.7 else {"xyz"[label]}))
        lines.append(",".join([*(f"{value:.6f}" for value in row), names, "xyz"[label]]))
    path = tmp_path_factory.mktemp("table") / "flowers.csv"
    path.write_text("\n".join(lines) + "\n")
    return path
