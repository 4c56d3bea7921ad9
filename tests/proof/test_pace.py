"""Long draws end in time, and what was drawn until then counts."""

import itertools

import torch
from attrs import evolve

from acceptor.core import Probabilistic
from kit.proof import large, samples
from kit.proof.frequencies import compare, random_chain
from kit.proof.grouped import grouped_step
from kit.proof.pace import Pace

CPU = torch.device("cpu")


def test_without_a_limit_everything_is_drawn() -> None:
    assert list(Pace().batches(10, 4, "ten")) == [(0, 4), (4, 4), (8, 2)]
    assert list(Pace().batches(0, 4, "none")) == []


def test_what_is_begun_late_ends_with_its_first_batch() -> None:
    lines: list[str] = []
    # Whenever it is looked at, a second has passed.
    slow = Pace(seconds=12.0, say=lines.append, clock=itertools.count().__next__)
    assert [begin for begin, _ in slow.batches(100, 10, "first")] == [0, 10, 20, 30, 40, 50]
    assert list(slow.batches(100, 10, "second")) == [(0, 10)]
    assert lines[-1] == "second: 10 of 100, the time is up"
    # And it told how far it was before.
    assert any("of 100" in line and "up" not in line for line in lines)


def test_a_sample_cut_short_is_tested_with_what_was_drawn() -> None:
    late = Pace(seconds=0.0)
    chain = random_chain(3, seed=4)
    compared = compare(chain, Probabilistic(), grouped_step, 9_000, CPU, 3_000, late)
    assert compared.tests["joint"].num_draws == 3_000
    assert compared.tests["joint"].p_value > 1e-6
    size = evolve(samples.SHORT, draws=400, draws_at_once=100)
    drawn = [test.num_draws for *_, test in large.near_uniform_draws("reference", CPU, size, late)]
    assert drawn == [100] * 9


def test_sizes_are_cut_on_request() -> None:
    cut = samples.size_for(CPU, short=False).at_most(draws=3, runs=100)
    assert (cut.draws, cut.runs, cut.runs_elsewhere) == (3, 100, 100)
    assert samples.ON_A_GPU.at_most(None, None) == samples.ON_A_GPU
    assert samples.size_for(torch.device("cuda"), short=False).draws >= 10_000_000
