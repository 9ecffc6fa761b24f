import dataclasses
import os

import pytest

from candidly.bench.spec import SUITES, Spec, parse_seeds, read_spec
from candidly.cleaning import CLEANERS, Clsp, Conformal, Random
from candidly.engine.recipe import RECIPES
from candidly.methods import METHODS, Cc, Pop, Proden


def spec(**changes):
    return Spec(**({"datasets": ("lost",), "methods": ("proden",)} | changes))


def test_every_method_has_every_cleaner():
    one = spec(methods=tuple(METHODS), cleaners=("none", "conf", "clsp"))
    assert len(one.combinations()) == 3 * len(METHODS)
    assert {"proden", "conf+proden", "clsp+crosel"} <= set(one.combinations())


def test_a_method_that_names_its_cleaner_is_taken_as_it_is():
    one = spec(methods=("conf+cc", "proden", "conf+proden"), cleaners=("none", "conf"))
    assert one.combinations() == ("conf+cc", "proden", "conf+proden")


@pytest.mark.parametrize(
    ("name", "method", "cleaner"),
    [
        ("cc", Cc(), None),
        ("conf+cc", Cc(), Conformal.published()),
        ("conf+proden (no correction)", Proden(), Conformal.published(correction=False)),
        ("clsp+pop", Pop(), Clsp()),
        ("conformal+proden", Proden(), Conformal()),
        ("algorithm1+proden", Proden(), Conformal.algorithm1()),
        ("random+proden", Proden(), Random(Conformal())),
    ],
)
def test_names_stand_for(name, method, cleaner):
    assert spec(methods=(name,)).parts(name) == (method, cleaner)


def test_a_cleaners_suffix_goes_last():
    one = spec(methods=("proden", "cc"), cleaners=("conf (no correction)",))
    assert one.combinations() == ("conf+proden (no correction)", "conf+cc (no correction)")


def test_every_cleaner_of_the_library_can_be_named():
    one = spec(cleaners=tuple(CLEANERS))
    assert [one.parts(name)[1] for name in one.combinations()] == [make() for make in CLEANERS.values()]


@pytest.mark.parametrize("changes", [{"methods": ("revocable+proden",)}, {"cleaners": ("revocable",)}])
def test_the_old_name_of_the_default_cleaner_is_accepted(changes):
    with pytest.warns(FutureWarning, match="a cleaner was renamed; write 'conformal.*' instead of 'revocable") as seen:
        one = spec(**changes)
    assert len(seen) == 1
    assert seen[0].filename == __file__
    assert one.combinations() == ("conformal+proden",)
    assert dataclasses.replace(one, seeds=(1,)).cleaners == one.cleaners, "and warns no more"


def test_the_old_name_beside_the_new_one_is_the_same_run():
    with pytest.warns(FutureWarning):
        assert spec(methods=("conformal+cc", "revocable+cc")).combinations() == ("conformal+cc",)


def test_own_parts():
    own = {"strict": Conformal(alpha=0.2), "slow-pop": Pop(start=50)}
    one = spec(methods=("strict+slow-pop", "strict+cc", "conf+slow-pop"), own=own)
    assert one.parts("strict+slow-pop") == (own["slow-pop"], own["strict"])
    assert one.parts("conf+slow-pop") == (own["slow-pop"], CLEANERS["conf"]())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"methods": ("prodne",)},
            "unknown method 'prodne' \\(did you mean 'proden'\\?\\); known are balanced, proden",
        ),
        ({"methods": ("conf+",)}, "unknown method"),
        (
            {"methods": ("cnof+proden",)},
            "unknown cleaner 'cnof' in 'cnof\\+proden' \\(did you mean 'conf'\\?\\)",
        ),
        ({"methods": ("clsp+proden (no correction)",)}, "unknown cleaner 'clsp \\(no correction\\)'"),
        ({"methods": ("proden (no correction)",)}, "unknown cleaner"),
        ({"methods": ("conf+proden(no correction)",)}, "write 'conf\\+proden \\(no correction\\)'"),
        ({"cleaners": ("cnof",)}, "unknown cleaner"),
        ({"methods": ()}, "methods is \\(\\); give at least one name"),
        ({"datasets": "lost,,"}, "datasets is 'lost,,'"),
        ({"seeds": ()}, r"seeds is \(\); give at least 1 and at most 10000"),
        ({"seeds": (0, 0)}, "one of them twice"),
        ({"seeds": (-1,)}, "seeds\\[0\\] is .*; it must be an integer from 0 to"),
        ({"seeds": (True,)}, "seeds\\[0\\] is .*; it must be an integer from 0 to"),
        ({"seeds": (10**23,)}, "seeds\\[0\\] is .*; it must be an integer from 0 to"),
        ({"seeds": range(10**12)}, "give at least 1 and at most 10000"),
        ({"seeds": 3}, "seeds is 3; it must be a list of integers"),
        ({"seeds": (0, 1000), "inits": 2}, "use seeds below 1000"),
        ({"inits": 2.5}, "inits is 2.5"),
        ({"inits": True}, "inits is True"),
        ({"recipe": 3}, "recipe is 3; it must be a Recipe"),
        ({"datasets": 3}, "datasets is 3; it must be a list of names"),
        ({"methods": ("conf+proden",), "cleaners": ("cnof",)}, "unknown cleaner 'cnof'"),
        ({"own": {"proden": Pop()}}, "has the name of a known method or cleaner"),
        ({"own": {"none": Conformal()}}, "has the name of a known method or cleaner"),
        ({"own": {"revocable": Conformal()}}, "has the name of a known method or cleaner"),
        ({"inits": 0}, "inits is 0"),
        ({"protocol": "uai"}, "protocol is 'uai'; use one of default, uai2025"),
        ({"recipe": "slow"}, "unknown recipe 'slow'"),
        ({"own": {"mine": 3}}, "own\\['mine'\\] is 3"),
        ({"own": {"a+b": Proden()}}, "'a\\+b' cannot name"),
    ],
)
def test_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        spec(**changes)


@pytest.mark.parametrize(("text", "seeds"), [("0-4", (0, 1, 2, 3, 4)), ("3", (3,)), ("7, 1-2", (1, 2, 7))])
def test_seeds(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "4-0", "a", "1-", "0-99999999", "1.5", "-1", "0-4-8"])
def test_bad_seeds(text):
    with pytest.raises(ValueError, match="seeds is"):
        parse_seeds(text)


def write(tmp_path, text):
    path = tmp_path / "spec.toml"
    path.write_text(text)
    return path


def test_toml(tmp_path):
    path = write(
        tmp_path,
        """
        datasets = ["lost", "digits+uniform-0.3"]
        methods = ["proden", "strict+patient"]
        seeds = "0-2"
        inits = 2
        protocol = "uai2025"
        [recipe]
        name = "short"
        epochs = 3
        [own.strict]
        kind = "conformal"
        alpha = 0.02
        [own.patient]
        kind = "pop"
        start = 40
        """,
    )
    assert read_spec(path) == Spec(
        ("lost", "digits+uniform-0.3"),
        ("proden", "strict+patient"),
        seeds=(0, 1, 2),
        inits=2,
        protocol="uai2025",
        recipe=dataclasses.replace(RECIPES["uai2025"], name="short", epochs=3),
        own={"strict": Conformal(alpha=0.02), "patient": Pop(start=40)},
    )


def test_toml_with_an_old_name(tmp_path):
    with pytest.warns(FutureWarning, match="write 'conformal\\+cc' instead of 'revocable\\+cc'"):
        one = read_spec(write(tmp_path, 'datasets = ["lost"]\nmethods = ["revocable+cc"]'))
    assert one.methods == ("conformal+cc",)


def test_toml_suite(tmp_path):
    one = read_spec(write(tmp_path, 'suite = "uai2025-realworld"\ndatasets = ["lost"]\nrecipe = "quick"'))
    assert one.datasets == ("lost",)
    assert one.protocol == "uai2025"
    assert len(one.methods) == 18
    assert one.recipe == RECIPES["quick"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("datasets = [", "spec.toml is not TOML: .*; correct it"),
        ('methods = ["proden"]', "datasets"),
        (
            'datasets = ["lost"]\nmethods = ["proden"]\nseed = 3',
            "key 'seed' \\(did you mean 'seeds'\\?\\); known",
        ),
        ('datasets = ["lost"]\nmethods = ["proden"]\n[recipe]\nepoch = 3', "recipe has the unknown key 'epoch'"),
        ('datasets = ["lost"]\nmethods = ["proden"]\n[own.x]\nkind = "cleaner"', "kind of own.x is 'cleaner'"),
        ('datasets = ["lost"]\nmethods = ["proden"]\n[own.x]\nalpha = 1', "kind of own.x is None"),
        ('datasets = ["lost"]\nmethods = ["proden"]\n[own.x]\nkind = "conformal"\nalfa = 1', "unknown key 'alfa'"),
        ('datasets = ["lost"]\nmethods = ["proden"]\nown = 3', "own is 3; make it a table"),
        ('datasets = ["lost"]\nmethods = ["proden"]\n[own]\nx = "conformal"', "own.x is 'conformal'; make it a table"),
        ('suite = ["x"]', "suite is \\['x'\\]"),
        ('datasets = ["lost"]\nmethods = ["proden"]\n[own.x]\nkind = ["pop"]', "kind of own.x is"),
        ('datasets = ["lost"]\nmethods = ["proden"]\n[recipe]\nepochs = 2.5', "epochs is 2.5"),
        ('datasets = ["lost"]\nmethods = ["proden"]\n[recipe]\nmax_lr = inf', "max_lr is inf"),
        ('suite = "uai2024"', "suite is 'uai2024'.*; use one of uai2025-realworld"),
    ],
)
def test_toml_refuses(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_spec(write(tmp_path, text))


GOOD = 'datasets = ["lost"]\nmethods = ["proden"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[own.x]\nkind = "conformal"\nfinite = "no"', "spec.toml: own.x: finite is 'no'; use True or False"),
        ('[own.x]\nkind = "conformal"\nfinite = 1', "spec.toml: own.x: finite is 1; use True or False"),
        ('[own.x]\nkind = "conformal"\nalpha = nan', "spec.toml: own.x: alpha is nan; it must be a number"),
        ('[own.x]\nkind = "conformal"\nwarmup = -5', "spec.toml: own.x: warmup is -5; it must be an integer"),
        ('[own.x]\nkind = "conformal"\nwarmup = 2.5', "own.x: warmup is 2.5; it must be an integer"),
        ('[own.x]\nkind = "conformal"\nalpha = "0.1"', "own.x: alpha is '0.1'; it must be a number"),
        ('[own.x]\nkind = "conformal"\nalpha = 2024-01-01', "own.x: alpha is datetime.date"),
        ('[own.x]\nkind = "conformal"\nalpha = [0.1]', "own.x: alpha is \\[0.1\\]"),
        (f'[own.x]\nkind = "conformal"\nalpha = 1{"0" * 400}', "own.x: alpha is 1000.*; it must be a number"),
        (f'[own.x]\nkind = "conformal"\nwarmup = 1{"0" * 5000}', "spec.toml is not TOML: "),
        ('[own.x]\nkind = "clsp"\nfeatures = "x"', "own.x has the unknown key 'features'"),
        ('[own.x]\nkind = "proden"\nbeta = 1', "own.x has the unknown key 'beta'; it has no settings"),
        ('[own.x]\nkind = "conformal"\nalpah = 1', "own.x has the unknown key 'alpah' \\(did you mean 'alpha'\\?\\)"),
        ('[own.x]\nkind = "popp"', "kind of own.x is 'popp' \\(did you mean 'pop'\\?\\); use one of"),
        ('[recipe]\nepochs = "3"', "spec.toml: recipe: epochs is '3'; it must be an integer"),
        ("[recipe]\nepochs = true", "spec.toml: recipe: epochs is True; it must be an integer"),
        ("[recipe]\nmax_lr = nan", "spec.toml: recipe: max_lr is nan"),
        ('[recipe]\naugment = "no"', "spec.toml: recipe: augment is 'no'"),
        ('seeds = "0-4"\nseeds = "0-2"', "spec.toml is not TOML: Cannot overwrite a value.*; correct it"),
        ("cleaners = {none = 1}", "spec.toml: cleaners is .*; it must be a list of names"),
        ("seeds = [0.5]", "spec.toml: seeds\\[0\\] is 0.5; it must be an integer"),
        ('seeds = ["0"]', "spec.toml: seeds\\[0\\] is '0'; it must be an integer"),
        ("seeds = 3", "spec.toml: seeds is 3; it must be a list of integers"),
        ("seeds = 2024-01-01", "spec.toml: seeds is datetime.date"),
        (f"inits = 1{'0' * 400}", "spec.toml: inits is 1000.*; it must be an integer from 1 to 1000"),
        ("inits = 1.0", "spec.toml: inits is 1.0; it must be an integer"),
        ('protocol = ["default"]', "spec.toml: protocol is \\['default'\\]; use one of default, uai2025"),
        ("cleaners = [1]", "spec.toml: cleaners\\[0\\] is 1; it must be a name"),
        ("cleaners = [[]]", "spec.toml: cleaners\\[0\\] is \\[\\]; it must be a name"),
        (f"x = {'[' * 5000}{']' * 5000}", "spec.toml: "),
        ("x = " + "{a = " * 3000 + "1" + "}" * 3000, "spec.toml: too many tables or lists are nested"),
        (f"# {'x' * 2**20}", "spec.toml has 10.* bytes, more than the limit"),
    ],
)
def test_toml_names_file_table_and_key(tmp_path, text, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_spec(write(tmp_path, GOOD + text))
    assert len(str(caught.value)) < 1000


def test_toml_may_have_a_byte_order_mark(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert read_spec(path).datasets == ("lost",)


def test_toml_in_another_encoding(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_bytes(GOOD.encode() + b"# caf\xe9")
    with pytest.raises(ValueError, match=r"spec.toml is not UTF-8 text \(byte \d+ is wrong\); save it as UTF-8"):
        read_spec(path)


@pytest.mark.skipif(os.name != "posix", reason="the system has no named pipes")
def test_toml_that_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    for path in (tmp_path, tmp_path / "pipe.toml", "/dev/zero"):
        with pytest.raises(OSError, match=f"{path} is not a file"):
            read_spec(path)


def test_suites_are_the_papers():
    sizes = {name: (len(Spec(**suite).datasets), len(Spec(**suite).combinations())) for name, suite in SUITES.items()}
    assert sizes == {"uai2025-realworld": (6, 18), "uai2025-images": (6, 18), "uai2025-ablation": (12, 3)}
    assert {suite["protocol"] for suite in SUITES.values()} == {"uai2025"}
