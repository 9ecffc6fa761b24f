"""What commands print about their results, as lines and as JSON, and the report they write."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.candidates import Annotator, Votes
from candidly.checks.machine import in_bytes
from candidly.cleaning import VerificationPlan
from candidly.cleaning.audit import Audit, format_guess
from candidly.cleaning.budget import MIN_ROWS
from candidly.cleaning.certify import Bound
from candidly.cli.results import Predictions
from candidly.encoders import ImageEncoder, TextEncoder
from candidly.estimator import Cleaned, PartialLabelClassifier, targets
from candidly.estimator.evaluation import Evaluation
from candidly.estimator.verification import NOT_A_CANDIDATE, UNKNOWN
from candidly.messages import cut, listed, listed_names, visible
from candidly.report import write
from candidly.report.facts import LevelFacts, ReportFacts, Truth
from candidly.report.summary import compare
from candidly.review.decisions import Log
from candidly.review.merging import Merged
from candidly.tables import files
from candidly.tables.labelled import Labelled

_MOST_ANNOTATORS = 10  # in a summary


def describe_report(report: ReportFacts, places: Mapping[str, str | Path | None]) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the facts to print about a training."""
    before, after = _mean_sizes(report)
    lines = [
        f"{report.title}: {report.rows} rows, {len(report.classes)} classes",
        f"candidates per row: {before:.2f} → {after:.2f}; rows changed: {report.changed}",
    ]
    if report.cost is not None:
        lines += _describe_cost(report, report.cost)
    elif report.audit is None:
        lines.append(f"no candidate was removed: this needs at least {MIN_ROWS} held-out rows")
    truth = report.truth
    lines += [*_describe_truth(truth), *_describe_places(places)]
    facts: dict[str, Any] = {"rows": report.rows, "classes": len(report.classes), "candidates_before": before}
    facts |= {"candidates_after": after, "changed": report.changed, "seconds": report.seconds, "truth": truth}
    facts |= {"estimate": report.cost, "status": None if report.audit is None else describe_status(report)}
    return lines, facts | {what: None if place is None else str(place) for what, place in places.items()}


def describe_new_rows(
    rows: Labelled,
    cleaned: Cleaned,
    classifier: PartialLabelClassifier,
    model: Path | None,
    places: Mapping[str, str | Path | None],
) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the facts to print about rows that a model cleaned without being trained on them."""
    before, after = cleaned.candidates, cleaned.kept
    changed = int((before.sizes != after.sizes).sum())
    best = targets.number(cleaned.transduction, before.classes, len(before))[0]
    labels = None if rows.labels is None else targets.number(rows.labels, before.classes, len(before))
    truth = None if labels is None else compare(before, after, best, *labels)
    lines = [
        f"{rows.title}: {len(before)} rows, {len(before.classes)} classes",
        f"candidates per row: {before.mean_size:.2f} → {after.mean_size:.2f}; rows changed: {changed}",
        f"{model} was not trained on these rows: they were cleaned by its class limits at level {classifier.alpha_:g}, "
        "without a guess of lost labels",
        *_describe_truth(truth),
        *_describe_places(places),
    ]
    facts: dict[str, Any] = {"rows": len(before), "classes": len(before.classes)}
    facts |= {"candidates_before": before.mean_size, "candidates_after": after.mean_size, "changed": changed}
    facts |= {"truth": truth, "estimate": None, "new_rows": True, "model": str(model)}
    return lines, facts | {what: None if place is None else str(place) for what, place in places.items()}


def describe_cleaned_stream(manifest: Mapping[str, Any], source: str, out: str) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the facts to print about the files of a table that were cleaned."""
    totals, facts, classes = manifest["totals"], manifest["facts"], len(manifest["facts"]["classes"])
    rows, trained = manifest["rows"], totals.get("training_rows", 0)
    before, after = (totals.get(f"candidates_{name}", 0) / max(rows, 1) for name in ("before", "after"))
    truth = None
    if (known := totals.get("truth")) is not None:
        truth = Truth(
            rows=known["rows"],
            outside=known["outside"],
            accuracy=known["right"] / known["rows"] if known["rows"] else None,
            true_lost=known["lost"] / known["rows"] if known["rows"] else None,
            wrong_removed=known["wrong_removed"] / known["wrong"] if known["wrong"] else None,
        )
    lines = [
        f"{source}: {_describe_files(manifest)}, {rows} rows, {classes} classes",
        f"candidates per row: {before:.2f} → {after:.2f}; rows changed: {totals.get('changed', 0)}",
    ]
    if trained:
        lines.append(f"{trained} rows were trained on, and have their held-out results")
    if trained < rows:
        lines.append(f"{rows - trained} rows were cleaned by the model's class limits at level {facts['alpha']:g}")
    guess = facts.get("guess")
    if guess is not None and guess["lost"] is not None:
        lines.append(f"guess for the rows that were trained on: true labels lost {format_guess(guess['lost'])}")
    lines += [*_describe_truth(truth), f"cleaned: {out}"]
    found = {"rows": rows, "files": len(manifest["files"]), "classes": classes, "candidates_before": before}
    found |= {"candidates_after": after, "changed": totals.get("changed", 0), "training_rows": trained}
    return lines, found | {"truth": truth, "estimate": guess, "shard": manifest["shard"], "cleaned": out}


def describe_predicted_stream(manifest: Mapping[str, Any], source: str, out: str) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the facts to print about the files of a table whose rows were predicted."""
    totals = {"rows": 0, "probability": 0.0} | manifest["totals"]
    lines, facts = describe_prediction_counts(totals, len(manifest["facts"]["classes"]), out)
    lines[0] = f"{source}: {_describe_files(manifest)}, {lines[0]}"
    return lines, facts | {"files": len(manifest["files"]), "shard": manifest["shard"]}


def _describe_files(manifest: Mapping[str, Any]) -> str:
    number, shard = len(manifest["files"]), manifest["shard"]
    words = f"{number} file{'' if number == 1 else 's'}"
    return words if shard is None else f"{words} of shard {shard[0]}/{shard[1]}"


def describe_reuse(lines: list[str], facts: dict[str, Any], model: Path | None) -> tuple[list[str], dict[str, Any]]:
    """Add to what is printed about training rows that their model was not trained again, if it was not."""
    if model is None:
        return lines, facts
    said = f"{model} was trained on this table: its held-out results were used, without training"
    return [lines[0], said, *lines[1:]], facts | {"new_rows": False, "model": str(model)}


def describe_size(folder: Path, classifier: PartialLabelClassifier, lean: bool) -> tuple[str, dict[str, Any]]:
    """Return the line and the facts to print about the size of a model that was saved to a folder."""
    record = classifier.fit_record_
    size = sum(path.stat().st_size for path in folder.iterdir())
    rows = 0 if lean or record is None else record.nbytes
    part = (
        "without the training rows"
        if lean
        else f"of which {in_bytes(rows)} about the training rows (--lean leaves them out)"
    )
    return f"size of the model: {in_bytes(size)}, {part}", {"bytes": size, "bytes_of_rows": rows}


def describe_status(report: ReportFacts) -> str:
    """Return whether an audit is verified, and how many rows to check if it is not."""
    assert report.audit is not None, "the caller checks that there is an audit"
    return Audit.from_json(report.audit).status(None if report.cost is None else report.cost["alpha"])


def describe_audit(report: ReportFacts, page: Path | None) -> tuple[list[str], dict[str, Any]]:
    """Return the lines, after the status, and the facts to print about an audit."""
    audit = report.audit
    assert audit is not None, "commands check that there are enough rows"
    before = _mean_sizes(report)[0]
    lines = [
        f"{report.title}: {report.rows} rows, {len(report.classes)} classes, {before:.2f} candidates per row",
        *Audit.from_json(audit, report.classes).lines(used=None if report.cost is None else report.cost["alpha"])[1:],
        *([] if page is None else [f"report: {page}"]),
    ]
    named: dict[str, Any] = {
        "classes": [{"name": report.classes[one["number"]], **one} for one in audit["classes"]],
        "pairs": [{"names": [report.classes[j] for j in one["numbers"]], **one} for one in audit["pairs"]],
    }
    facts: dict[str, Any] = {"rows": report.rows, "classes": len(report.classes), "candidates": before}
    facts |= {"alpha": report.settings["alpha"], "seconds": report.seconds, "status": describe_status(report)}
    facts["audit"] = {**audit, **named}
    return lines, facts | {"report": None if page is None else str(page)}


def describe_votes(
    votes: Votes | None, rows: Labelled, classifier: PartialLabelClassifier | None
) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the facts to print about votes, if there are any.

    `classifier` is the one that was trained on the rows, if there is one: it knows labels and annotators.
    """
    if votes is None:
        return [], {}
    agreement = {"observed": votes.agreement.observed, "krippendorff_alpha": votes.agreement.alpha}
    lines = str(votes).splitlines()
    facts: dict[str, Any] = {"agreement": agreement}
    unvoted = 0 if rows.unvoted is None else len(rows.unvoted.place)
    if unvoted:
        lines.append(f"rows without votes, which the model predicts: {unvoted}")
    facts |= {"unvoted": unvoted}
    if classifier is None or rows.votes is None or not classifier.annotators_:
        return lines, facts
    labels, found = _describe_majority(rows, rows.votes, classifier.transduction_)
    annotators = classifier.annotators_
    facts |= {"majority": found, "annotators": [_annotator_facts(one) for one in annotators]}
    return [*lines, labels, *_describe_annotators(annotators)], facts


def _describe_majority(rows: Labelled, votes: Votes, chosen: NDArray[Any]) -> tuple[str, dict[str, Any]]:
    """Return the line and the facts that compare the labels of the posterior with those of the majority."""
    majority = votes.majority()
    tied = np.array([name is None for name in majority])
    other = int((~tied & (majority != chosen.astype(object))).sum())
    facts: dict[str, Any] = {"differs": other, "tied": int(tied.sum())}
    line = f"labels by votes and features: {other} of {len(tied)} differ from the majority, {tied.sum()} are ties"
    if rows.labels is not None and any(rows.labels):
        texts = np.array(["" if one is None else one for one in rows.labels], dtype=object)
        known = texts != ""
        names = np.array([str(name) for name in votes.candidates.classes], dtype=object)
        top = votes.counts == votes.counts.max(axis=1, keepdims=True)
        hits = (top & (names == texts[:, None])).sum(axis=1) / top.sum(axis=1)  # one of k tied labels counts 1/k
        right = np.array([str(name) for name in chosen.tolist()], dtype=object) == texts
        facts |= {"majority_accuracy": float(hits[known].mean()), "accuracy": float(right[known].mean())}
        line += f"; accuracy {facts['accuracy']:.1%}, majority {facts['majority_accuracy']:.1%}"
    return line, facts


def _annotator_facts(one: Annotator) -> dict[str, Any]:
    name = one.name if type(one.name) in (str, int, float, type(None)) else str(one.name)
    confusions = [each._asdict() | {"true": str(each.true), "given": str(each.given)} for each in one.confusions]
    return vars(one) | {"name": name, "confusions": confusions}


def _describe_annotators(annotators: Sequence[Annotator]) -> list[str]:
    """Return a table of the annotators, the least accurate ones first."""
    shown = sorted(annotators, key=lambda one: one.high)[:_MOST_ANNOTATORS]
    names = ["all" if one.name is None else cut(visible(str(one.name)), 30) for one in shown]
    width = max(map(len, names))
    lines = ["annotators, by accuracy with its 95% interval, against the labels without their own votes:"]
    for name, one in zip(names, shown, strict=True):
        same = "" if one.agreement is None else f", agrees with the others {one.agreement:.0%}"
        mistake = ""
        if one.confusions:
            true, given, _, fraction = one.confusions[0]
            mistake = f"; {fraction:.0%} of {visible(str(true))} as {visible(str(given))}"
        lines.append(
            f"  {name:{width}}  {one.accuracy:6.1%} ({one.low:.1%} to {one.high:.1%}), {one.votes} votes{same}{mistake}"
        )
    if len(annotators) > len(shown):
        lines.append(f"  and {len(annotators) - len(shown)} more, who are more accurate (--json lists all)")
    return lines


def describe_predictions(found: Predictions, classes: int, out: str) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the facts to print about predictions."""
    return describe_prediction_counts(found.counts(), classes, out)


def describe_prediction_counts(counts: Mapping[str, Any], classes: int, out: str) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the facts to print about predictions, given what was counted over all rows."""
    rows = counts["rows"]
    probability = counts["probability"] / max(rows, 1)
    lines = [f"{rows} rows, {classes} classes, mean probability of the predicted class {probability:.1%}"]
    facts: dict[str, Any] = {"rows": rows, "classes": classes, "mean_probability": probability, "predictions": out}
    if "abstained" in counts:
        lines.append(f"rows without a prediction: {counts['abstained']}")
        facts["abstained"] = counts["abstained"]
    if "in_sets" in counts:
        size, empty = counts["in_sets"] / max(rows, 1), counts["empty_sets"]
        lines.append(f"classes per set: {size:.2f}; empty sets: {empty}")
        facts |= {"mean_set_size": size, "empty_sets": empty}
    return [*lines, f"predictions: {name_place(out)}"], facts


def describe_embedding(
    counts: Mapping[str, int],
    others: Mapping[str, int],
    encoder: ImageEncoder | TextEncoder,
    column: str,
    seconds: float,
    out: str,
) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the facts to print about encoded rows, and about other files by their suffixes."""
    rows, broken, features, made = counts["rows"], counts["broken"], encoder.n_features_out_, encoder.provenance(column)
    lines = [f"{rows} rows, {features} features from {made.encoder} (weights {made.weights[:8]})"]
    if broken:
        lines.append(f"rows left out because their image is missing or cannot be read: {broken}")
    if others:
        kinds = listed(f"{suffix} {count}" for suffix, count in sorted(others.items(), key=lambda one: -one[1]))
        lines.append(f"files left out because their suffix is not that of an image: {sum(others.values())} ({kinds})")
    lines.append(f"encoded in {seconds:.1f} s; features: {name_place(out)}")
    facts = {"rows": rows, "broken": broken, "others": others, "num_features": features, "encoder": made.encoder}
    facts |= {"version": made.version, "weights": made.weights, "seconds": seconds, "features": out}
    return lines, facts


def describe_evaluation(result: Evaluation, plot: Path | None) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the facts to print about an evaluation."""
    place = None if plot is None else str(plot)
    return [*str(result).splitlines(), *([] if place is None else [f"plot: {place}"])], result.to_json() | {
        "plot": place
    }


def describe_plan(
    plan: VerificationPlan, model: Path, out: str, cleaned: str = "cleaned.csv"
) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the facts to print about rows to check."""
    lines = [
        str(plan),
        f"rows to check: {name_place(out)}; write the true label of each row into the column answer, without looking "
        "at predictions",
        f"then run `candidly certify {model} FILE --out {cleaned}`; rows without an answer will count as lost",
    ]
    return lines, {"plan": plan.to_json(), "tolerated": plan.tolerated[-1], "model": str(model), "to_check": out}


def describe_certificate(certificate: Bound, out: str) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the facts to print about certified rows."""
    lines = [*certificate.lines(), f"cleaned: {name_place(out)}"]
    return lines, certificate.to_json() | {"cleaned": out}


def review_lines(log: Log, answers: Iterable[Any]) -> list[str]:
    """Return a sentence on the answers of a review, one per row, and one on how far each two reviewers agree."""
    counts: Counter[Any] = Counter(answers)
    none, unknown, total = counts[NOT_A_CANDIDATE], counts[UNKNOWN], counts.total()
    who = ", ".join(log.reviewers) or "nobody"
    lines = [
        f"{total} rows decided by {who}: {total - none - unknown} with a class, {none} {NOT_A_CANDIDATE!r}, "
        f"{unknown} {UNKNOWN!r}"
    ]
    for one in log.agreement():
        first, second = one.reviewers
        kappa = "" if one.kappa is None else f", Cohen's kappa {one.kappa:.2f}"
        lines.append(f"{first} and {second} agree on {one.observed:.1%} of {one.rows} rows{kappa}")
    return lines


def describe_decisions(log: Log, merged: Merged, out: str) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the facts to print about decisions that were merged into a table."""
    decided, *agreeing = review_lines(log, merged.answers.values())
    counts = Counter(merged.answers.values())
    none, unknown = counts[NOT_A_CANDIDATE], counts[UNKNOWN]
    lines = [f"{log.path}: {decided}", *agreeing]
    if merged.added:
        lines.insert(1, f"new classes: {listed_names(merged.added)}")
    pairs = [
        {"reviewers": list(one.reviewers), "rows": one.rows, "observed": one.observed, "kappa": one.kappa}
        for one in log.agreement()
    ]
    facts: dict[str, Any] = {
        "decided": len(merged.answers),
        "named": len(merged.answers) - none - unknown,
        "none_of_these": none,
        "cannot_tell": unknown,
    }
    facts |= {"new_classes": list(merged.added), "disagreements": merged.disputed, "agreement": pairs, "table": out}
    return [*lines, f"table: {name_place(out)}"], facts


def write_page(report: ReportFacts, page: Path | None) -> None:
    """Write the report, if a file is given for it."""
    if page is not None:
        with files.writing(page):
            write(report, page)


def name_place(place: str | Path) -> str:
    """Return the name of a file in messages.

    Examples
    --------
    >>> name_place("new.csv"), name_place("-")
    ('new.csv', 'standard output')
    """
    return "standard output" if place == "-" else str(place)


def _describe_truth(truth: Truth | None) -> list[str]:
    if truth is None:
        return []
    shares = {"accuracy": truth["accuracy"], "true labels lost": truth["true_lost"]}
    shares["wrong candidates removed"] = truth["wrong_removed"]
    known = [f"{what} {share:.1%}" for what, share in shares.items() if share is not None]
    lines = [f"on {truth['rows']} rows with a known label: {', '.join(known) or 'nothing to score'}"]
    if truth["outside"]:
        lines.append(f"in {truth['outside']} of them the true label is not a candidate, so it cannot be lost")
    return lines


def _describe_places(places: Mapping[str, str | Path | None]) -> list[str]:
    return [f"{what}: {name_place(place)}" for what, place in places.items() if place is not None]


def _mean_sizes(report: ReportFacts) -> tuple[float, float]:
    before, after = (
        sum(size * n for size, n in enumerate(counts, 1)) / report.rows for counts in (report.before, report.after)
    )
    return before, after


def _describe_cost(report: ReportFacts, level: LevelFacts) -> list[str]:
    lines = [describe_status(report)]
    if level["lost"] is None:
        return [*lines, f"true labels lost: no guess ({level['declined']})"]
    lost, removed = format_guess(level["lost"]), format_guess(level["removed"])
    return [*lines, f"guess: true labels lost {lost}, wrong candidates removed {removed}"]
