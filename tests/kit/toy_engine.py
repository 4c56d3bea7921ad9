"""Engines on a toy pair, and what they tell."""

from acceptor.app.engine.engine import Engine
from acceptor.app.engine.schedule import Limits
from acceptor.app.request import Progress
from acceptor.core import Probabilistic
from kit.toy_pair import Pair

MAX_LEN = 40


def engine_of(pair: Pair, **limits: int) -> Engine:
    limits = {"num_slots": 3, "max_len": MAX_LEN} | limits
    return Engine.of(pair.decoder(Probabilistic(), 4), Limits(**limits))


def run(engine: Engine) -> list[Progress]:
    told = []
    while engine.has_unfinished():
        told += engine.step()
    return told
