"""Made-up facts of a report, as real ones are."""

import math

import numpy as np

from candidly.report.facts import ReportFacts

BIRDS = [
    "barn owl",
    "blackbird",
    "blue tit",
    "chaffinch",
    "chiffchaff",
    "dunnock",
    "goldcrest",
    "great tit",
    "house sparrow",
    "nightingale",
    "robin",
    "song thrush",
    "willow warbler",
    "wren",
]
HOSTILE = [
    "<script>window.hacked = 1</script>",
    "=cmd()",
    "\x1b[31mred\x07",
    "long " * 60,
    "x" * 300,
    '"><img src=x onerror="window.hacked=2">',
    "</script><script>window.hacked=3</script>",
    "right\u202eleft\u2066",
    "line\u2028feed\nand\ttab",
    "{{ 7 * 7 }}{% raw %}",
    "lone \ud800 surrogate",
    "",
    "&lt;b&gt; &amp;",
]


def birds(rows=5000, epochs=60, doubtful=400, truth=True, seed=0, classes=BIRDS):
    """Return facts about songs of birds."""
    rng = np.random.default_rng(seed)
    C = len(classes)
    centre = rng.normal(size=(C, 2))
    y = rng.integers(C, size=rows)
    near = np.exp(-2 * ((centre[y][:, None] - centre) ** 2).sum(-1))  # how alike each class and the true one are
    S = (rng.random((rows, C)) < 0.04 + 0.7 * near) | (y[:, None] == np.arange(C))
    p = np.exp(8 * near + rng.gumbel(scale=1.3, size=(rows, C)))
    p /= p.sum(1, keepdims=True)
    best = np.sort((p * S).max(1))
    score = np.searchsorted(best, p, side="right") / rows  # a share of calibration rows
    q = p * S / (p * S).sum(1, keepdims=True)
    kept = S & ((score > 0.05) | (p >= (p * S).max(1, keepdims=True)))
    gone = S & ~kept
    predicted, confidence, top = q.argmax(1), q.max(1).clip(max=1), p.argmax(1)
    shown = np.argsort(-S.sum(0))[:30].tolist()
    doubt = np.argsort(confidence)[:doubtful]
    known = rng.random(rows) < 0.25
    return ReportFacts(
        title="garden-birds-2025.csv",
        version="0.1.0",
        date="2026-01-31T16:42:08+00:00",
        seconds=173.4,
        device="NVIDIA H200",
        words=[
            f"{rows:,} rows with {S.sum(1).mean():.2f} candidates each were read from the column species.",
            "10 networks were trained with PRODEN in 5 folds; every row was judged by networks that had not seen it.",
            "The least likely candidates were removed; the most likely candidate of a row always stayed.",
        ],
        features=[
            "34 numeric columns standardised",
            "station: 12 categories",
            "wind: 31 missing values replaced by the mean 2.4, with an indicator column",
        ],
        settings={
            "method": "proden",
            "cleaner": "conformal",
            "folds": 5,
            "members": 2,
            "epochs": epochs,
            "alpha": 0.05,
            "learning rate": 0.001,
            "early stopping": True,
            "batch size": None,
            "seed": 0,
        },
        classes=list(classes),
        rows=rows,
        changed=int(gone.any(1).sum()),
        before=np.bincount(S.sum(1), minlength=C + 1)[1:].tolist(),
        after=np.bincount(kept.sum(1), minlength=C + 1)[1:].tolist(),
        history=history(epochs, truth),
        shown=shown,
        together=[[int((S[:, i] & S[:, j]).sum()) for j in shown] for i in shown],
        removed=[[int((gone[:, j] & (predicted == i)).sum()) for j in shown] for i in shown],
        doubtful=[
            {
                "priority": priority,
                "row": int(i),
                "id": f"rec-{7 * int(i) % rows}",
                "candidates": np.flatnonzero(S[i]).tolist(),
                "removed": np.flatnonzero(gone[i]).tolist(),
                "scores": q[i][S[i]].clip(max=1).tolist(),
                "predicted": int(predicted[i]),
                "confidence": float(confidence[i]),
                "outside": None if S[i, top[i]] else int(top[i]),
                "outside_score": None if S[i, top[i]] else float(p[i, top[i]]),
                "true": int(y[i]) if truth and known[i] else None,
            }
            for priority, i in enumerate(doubt, 1)
        ],
        reliability=bins(p.max(1), S[np.arange(rows), top], top == y if truth else None),
        truth=evaluation(S, kept, predicted, y, known) if truth else None,
        audit=audit(C, rows, truth),
    )


def audit(C, rows, truth=True, declined=None, alphas=(0.01, 0.02, 0.05, 0.1, 0.2), checked=None):
    """Return what cleaning costs; pairs and classes in doubt are the first ones."""
    verified = {"rows": checked, "unanswered": 2, "outside": 1, "population": rows, "missing": [0.01, 0.001, 0.04]}
    pair = {"numbers": [0, C - 1], "rows": rows / 9, "why": "one of them is likely in about 0 rows without the other"}
    return {
        "levels": [
            {
                "alpha": alpha,
                "lost": None if declined else [0.8 * alpha, 0.3 * alpha, min(1.7 * alpha, 1.0)],
                "removed": None if declined else [0.5 + alpha, 0.4 + alpha, 0.6 + alpha],
                "candidates": int(rows * (C - 1) * alpha),
                "declined": declined,
                "true_lost": 0.9 * alpha if truth else None,
                "true_removed": 0.51 + alpha if truth else None,
                "check": None if alpha > 0.1 else min(round(2.2 / alpha), rows),
                "verified": None if checked is None else [0.9 * alpha, 0.5 * alpha, 1.6 * alpha],
            }
            for alpha in alphas
        ],
        "missing": [0.008, 0.001, 0.029],
        "error": [0.071, 0.03, 0.12],
        "excess": -0.02,
        "classes": [{"number": C // 2, "rows": 7.4, "why": "about 7 rows are too few to learn from"}],
        "pairs": [pair] if C > 1 else [],
        "words": ["The most likely candidate is wrong in a guessed 3 to 12% of the rows."],
        "known": {"rows": rows // 4, "outside": 3} if truth else None,
        "verified": None if checked is None else verified,
    }


def evaluation(S, kept, predicted, y, known):
    wrong = (S & (y[:, None] != np.arange(S.shape[1])))[known]
    return {
        "rows": int(known.sum()),
        "outside": 0,
        "accuracy": float((predicted == y)[known].mean()),
        "true_lost": float(1 - kept[np.arange(len(y)), y][known].mean()),
        "wrong_removed": float((wrong & ~kept[known]).sum() / wrong.sum()) if wrong.any() else None,
    }


def history(epochs, truth):
    """Return curves as training draws them; nothing is cleaned in the first ten epochs."""
    fall = [math.exp(-epoch / 15) for epoch in range(epochs)]
    cleaned = [0.0 if epoch < 10 else 1 - math.exp(-(epoch - 10) / 8) for epoch in range(epochs)]
    means = {
        "loss": [0.22 + 1.9 * x for x in fall],
        "alpha": [None if not c else 0.004 + 0.06 * x for x, c in zip(fall, cleaned, strict=True)],
        "threshold": [None if not c else 0.02 + 0.18 * c for c in cleaned],
        "mean_candidates": [3.9 - 2.4 * c for c in cleaned],
        "covering_rate": [0.953 - 0.4 * x for x in fall],
        "share_changed": [0.83 * c for c in cleaned],
        "estimated_lost": [0.02 * c for c in cleaned],
    }
    if truth:
        means |= {"accuracy": [0.91 - 0.5 * x for x in fall], "true_kept": [0.97 - 0.03 * c for c in cleaned]}
    return {name: band(values) for name, values in means.items()}


def band(values):
    """Return a curve around values, with some wobble."""
    spread = [None if v is None else abs(v) * (0.02 + 0.015 * math.sin(2.4 * i) ** 2) for i, v in enumerate(values)]
    around = list(zip(values, spread, strict=True))
    return {
        "mean": [None if v is None else v + s * math.sin(5 * i) / 3 for i, (v, s) in enumerate(around)],
        "low": [None if v is None else v - s for v, s in around],
        "high": [None if v is None else v + s for v, s in around],
    }


def bins(probability, covered, correct):
    found, edges = [], np.linspace(0, 1, 11)
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        inside = (probability >= low) & (probability < high)
        means = {"probability": probability, "covering": covered, "accuracy": correct}
        facts = {
            name: float(value[inside].mean()) if value is not None and inside.any() else None
            for name, value in means.items()
        }
        found.append({"low": low, "high": high, "count": int(inside.sum()), **facts})
    return found
