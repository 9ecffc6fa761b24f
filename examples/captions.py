"""Faces and names: who is who in newspaper photos whose captions only list the people in them.

Run it with ``python examples/captions.py``. Each row is a face: 20 numbers that describe it, an estimated age and the
section of the newspaper. Its candidates are the names in the caption, as text: ``Ada Holm;Ben Ode``. Faces and captions
are synthetic. The script writes a model and a report into the current folder; the report needs
``pip install 'candidly[report]'``.
"""

import numpy as np
import pyarrow as pa

from candidly import PartialLabelClassifier, report

SECTIONS = {"politics": "Holm", "sport": "Ode", "culture": "Pires", "business": "Quist"}  # a family per section
PEOPLE = [f"{first} {last}" for last in SECTIONS.values() for first in ("Ada", "Ben", "Cleo", "Dov", "Elif", "Finn")]
TWINS = ("Ada Quist", "Ben Quist")  # never in a photo without each other


def choose_people(section, rng):
    """Return the people in a photo: one to four, mostly those of its section, and either both twins or neither."""
    chance = np.array([5.0 if name.endswith(SECTIONS[section]) else 1.0 for name in PEOPLE])
    people = rng.choice(PEOPLE, size=rng.integers(1, 5), replace=False, p=chance / chance.sum()).tolist()
    return sorted({*people, *TWINS}) if set(people) & set(TWINS) else people


def take_photos(number, looks, rng):
    """Return a table of faces, their captions, their true names, and the number of each face's photo."""
    faces, rest, captions, names, photos = [], {"age": [], "section": []}, [], [], []
    for photo, section in enumerate(rng.choice(list(SECTIONS), size=number).tolist()):
        people = choose_people(section, rng)
        for name in people:
            faces.append(looks[name] + rng.normal(0, 1.1, 20))
            rest["age"].append(30 + 5 * looks[name][0] + rng.normal(0, 5) if rng.random() < 0.9 else None)
            rest["section"].append(section if rng.random() < 0.9 else None)
            captions.append(";".join(people))
            names.append(name)
            photos.append(photo)
    columns = {f"face_{j}": column for j, column in enumerate(np.array(faces).T)}
    return pa.table(columns | rest), captions, np.array(names), photos


def tell(what, right, twins):
    """Print the fraction of correct names, for the twins and for all others."""
    print(f"{what}: {right[~twins].mean():.1%} named right; the twins, by guessing, {right[twins].mean():.1%}")


def main():
    """Name the faces, save the model, and write the page."""
    rng = np.random.default_rng(0)
    looks = {name: rng.normal(0, 1, 20) for name in PEOPLE}
    X, captions, names, photos = take_photos(160, looks, rng)
    new_X, _, new_names, _ = take_photos(60, looks, rng)  # photos without a caption

    learner = PartialLabelClassifier(separator=";", max_epochs=15, random_state=1)
    learner.fit(X, captions, groups=photos)  # the faces of a photo share their candidates: hold them out together
    print("\n".join(learner.features_.describe()))

    # Wherever one of the twins is a candidate, the other is too. No row says which is which, so no method and no number
    # of photos can tell them apart. The initialisation decides which name each of them gets: with another random_state
    # most of them may be right, or wrong. What helps is a row with only one of the two, such as a face labelled by
    # hand. The audit finds such pairs, cleaning does not choose between them, and the report names them.
    twins, new_twins = np.isin(names, TWINS), np.isin(new_names, TWINS)
    before = np.mean([len(caption.split(";")) for caption in captions])
    print(f"\n{len(names)} faces with a caption: {before:.2f} names each, {learner.candidates_.mean_size:.2f} kept")
    audit = learner.audit(names)
    level = next(one for one in audit.levels if one.alpha == learner.alpha)
    print(f"the right name is lost for {level.true_lost:.1%}")
    print(f"without the right names, the audit guesses {level.lost.low:.1%} to {level.lost.high:.1%}")
    for pair in audit.pairs:
        print("cannot be told apart:", " and ".join(learner.classes_[list(pair.numbers)]))
    tell("faces with a caption", learner.transduction_ == names, twins)
    tell("faces without one", learner.predict(new_X) == new_names, new_twins)

    sets = learner.predict_set(new_X, alpha=0.1)
    inside = sets[new_names[:, None] == learner.classes_]
    print(f"sets of {sets.sum(1).mean():.2f} names at alpha = 0.1 hold the right one for {inside.mean():.1%}")
    for row in range(5):
        print(f"  {new_names[row]:12}{', '.join(learner.classes_[sets[row]])}")

    facts = report.summarise(learner, "Faces in captions", y_true=names)
    learner.save("captions-model")
    again = PartialLabelClassifier.load("captions-model")
    print("\nthe loaded model predicts the same:", np.array_equal(again.predict(new_X), learner.predict(new_X)))
    report.write(facts, "captions.html")
    print("written: captions-model, captions.html")


if __name__ == "__main__":
    main()
