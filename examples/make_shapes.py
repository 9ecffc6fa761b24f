"""Draw the images of docs/guides/encoders.md: shapes.csv lists them with candidates, new-shapes holds further ones.

Run it with ``python examples/make_shapes.py``; it needs pillow.
"""

import csv
import random
from pathlib import Path

from PIL import Image, ImageDraw

SHAPES = ("circle", "cross", "square", "triangle")
SIZE = 64


def draw(shape: str, rng: random.Random) -> Image.Image:
    """Return a picture of a shape, at a random place, in random colours."""
    back, front = (tuple(rng.randrange(low, low + 100) for _ in range(3)) for low in (0, 150))
    picture = Image.new("RGB", (SIZE, SIZE), back)
    radius = rng.randint(14, 22)
    x, y = (rng.randint(radius + 4, SIZE - radius - 4) for _ in range(2))
    box = (x - radius, y - radius, x + radius, y + radius)
    pen = ImageDraw.Draw(picture)
    if shape == "circle":
        pen.ellipse(box, fill=front)
    elif shape == "square":
        pen.rectangle(box, fill=front)
    elif shape == "triangle":
        pen.polygon([(x, box[1]), (box[0], box[3]), (box[2], box[3])], fill=front)
    else:
        pen.line(box, fill=front, width=9)
        pen.line((box[0], box[3], box[2], box[1]), fill=front, width=9)
    return picture


def main() -> None:
    """Write 120 pictures with candidates, and 12 without."""
    rng = random.Random(0)
    for folder in ("shapes", "new-shapes"):
        Path(folder).mkdir(exist_ok=True)
    with open("shapes.csv", "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["image", "candidates", "label"])
        for i in range(120):
            shape = SHAPES[i % 4]
            others = [other for other in SHAPES if other != shape and rng.random() < 0.3]
            draw(shape, rng).save(f"shapes/{i:03d}.png")
            rows.writerow([f"shapes/{i:03d}.png", "|".join(sorted([shape, *others])), shape])
    for i in range(12):
        draw(SHAPES[i % 4], rng).save(f"new-shapes/{SHAPES[i % 4]}-{i}.png")
    print("shapes.csv: 120 rows, columns image, candidates, label; new-shapes: 12 images")


if __name__ == "__main__":
    main()
