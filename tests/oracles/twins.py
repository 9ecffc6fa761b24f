"""The slow literal twin of every method, by the method's name."""

from tests.oracles.balanced import Balanced
from tests.oracles.cavl import Cavl
from tests.oracles.cc import Cc
from tests.oracles.crosel import Crosel
from tests.oracles.lws import Lws
from tests.oracles.pico import Pico
from tests.oracles.plcr import Plcr
from tests.oracles.pop import Pop
from tests.oracles.proden import Proden
from tests.oracles.rc import Rc
from tests.oracles.twin import Twin
from tests.oracles.valen import Valen

TWINS: dict[str, type[Twin]] = {
    "balanced": Balanced,
    "proden": Proden,
    "rc": Rc,
    "cc": Cc,
    "cavl": Cavl,
    "pop": Pop,
    "valen": Valen,
    "crosel": Crosel,
    "lws": Lws,
    "plcr": Plcr,
    "pico": Pico,
}
