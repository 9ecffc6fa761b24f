import pytest

from candidly.engine.recipe import RECIPES, Recipe, find_recipe


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs is 0; it must be an integer of at least 1"),
        ({"batch_size": 1}, "batch_size is 1; it must be an integer of at least 2"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"optimiser": "adamw"}, "optimiser is 'adamw'; use one of adam, sgd"),
        ({"schedule": "cosine"}, "schedule is 'cosine'; use one of one-cycle, constant"),
        ({"max_lr": 0.0}, "max_lr is 0.0; it must be a finite number above 0"),
        ({"max_lr": float("nan")}, "max_lr is nan"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0; it must be a finite number of at least 0"),
        ({"augment": "cut"}, "augment is 'cut'; use one of True, False, cutout, strong"),
        ({"augment": 1}, "augment is 1; use one of True, False, cutout, strong"),
        ({"precision": "half"}, "precision is 'half'; use one of auto, float32"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**settings)


@pytest.mark.parametrize(("sizes", "batch"), [([4999, 100], 16), ([5000], 256), ([100, 5000], 100), ([10, 20], 10)])
def test_the_papers_batch_size(sizes, batch):
    assert Recipe().batch(sizes) == batch


def test_a_recipe_takes_the_rate_of_a_method_unless_it_names_one():
    assert Recipe("a").with_rate(0.001) == Recipe("a", max_lr=0.001)
    assert Recipe("a", max_lr=0.5).with_rate(0.001) == Recipe("a", max_lr=0.5)


def test_recipes_are_found_by_name():
    assert find_recipe("uai2025") is RECIPES["uai2025"]
    assert (find_recipe("uai2025").epochs, find_recipe("quick").epochs) == (200, 30)
    assert find_recipe(Recipe(epochs=3)).name == "custom"
    with pytest.raises(ValueError, match="unknown recipe 'uai'; use one of uai2025, quick"):
        find_recipe("uai")
