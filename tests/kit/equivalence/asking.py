"""Batches that ask for all their form has, so that kernels without some of it are not compiled.

Whether some request has a bias, a filter or logprobs decides which kernels a batch takes. Left to
chance, most of a run's kernels would be for batches that happen to lack something: thousands, each
for a few batches. It refuses to change anything but a case's seed.
"""

from collections.abc import Iterator, Sequence
from itertools import count

from attrs import evolve

from acceptor.backends.conformance.case import Case
from acceptor.backends.conformance.random_params import all_params
from acceptor.backends.conformance.sampling import drawn_again
from acceptor.core import SamplingParams, SamplingTensors
from acceptor.core.sampling_tensors import RecipeTensors

FILTERS = ("min-p", "top-k", "top-p")
SEEDS_END = 2**48


def asking_for_all(case: Case) -> Case:
    """The first of a case and those with the next seeds whose requests ask for everything."""
    return next(other for other in _with_later_seeds(case) if asks_for_all(other))


def asks_for_all(case: Case) -> bool:
    """Whether all requests do together, and those that are drawn again do, if there are any."""
    wishes, again = all_params(case), drawn_again(case)
    together = [wishes, *([[wishes[request] for request in again]] if again else [])]
    return all(_ask_for_all(some, case) for some in together)


def _with_later_seeds(case: Case) -> Iterator[Case]:
    return (evolve(case, seed=(case.seed + step) % SEEDS_END) for step in count())


def _ask_for_all(wishes: Sequence[SamplingParams], case: Case) -> bool:
    params = SamplingTensors.stack(wishes)
    asked = (params.bias, params.penalties, params.num_logprobs)
    wanted = (case.has("bias"), case.has("penalties"), case.has("logprobs"))
    is_asked = tuple(one is not None for one in asked) == wanted
    return is_asked and all(_filters(recipe, case) for recipe in (params.target, params.draft))


def _filters(recipe: RecipeTensors, case: Case) -> bool:
    # Whoever is greedy filters nothing.
    asked = (recipe.any_min_p, recipe.any_top_k, recipe.any_top_p)
    return recipe.all_greedy or asked == tuple(map(case.has, FILTERS))
