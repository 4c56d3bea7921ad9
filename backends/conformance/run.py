"""One case after another, on one backend or on two, and the smallest one that fails."""

from collections.abc import Callable, Iterator, Sequence

import torch
from attrs import evolve

from ...core.errors import UnavailableError
from ...core.ports import Sampler
from .calls import Watched
from .case import Case
from .check import Check
from .compare import between
from .findings import Findings

PLAIN = Case()


def run_case(case: Case, sampler: Sampler, device: torch.device) -> Findings:
    """What a case shows; a crash is a difference, a policy that the backend lacks is counted."""
    return run_all(Check(case), [Watched(sampler, device)])[0].shown_by(case.to_json())


def run_all(check: Callable[[Watched], None], backends: Sequence[Watched]) -> tuple[Findings, ...]:
    """What a check shows of one backend, or of two and then of what lies between the two."""
    found = tuple(_guarded(check, backend) for backend in backends)
    if len(backends) == 1:
        return found
    if any(each.num_unsupported for each in found):
        return (*found, Findings(num_unsupported=1))
    # The same requests and decisions as the first one's.
    return (*found, evolve(found[0], differences=tuple(between(*backends))))


def _guarded(check: Callable[[Watched], None], backend: Watched) -> Findings:
    try:
        check(backend)
    except UnavailableError:
        return Findings(num_unsupported=1)
    except Exception as error:  # noqa: BLE001 whatever a backend raises is a finding
        backend.note("call", "an output", f"{type(error).__name__}: {error}")
    return backend.findings + Findings(num_batches=1)


def smallest_failure(case: Case, sampler: Sampler, device: torch.device) -> Case | None:
    """Make a case simpler while it still fails; None if it does not."""

    def fails(some: Case) -> bool:
        return bool(run_case(some, sampler, device).unexplained)

    smallest, simpler = None, case if fails(case) else None
    while simpler is not None:
        smallest, simpler = simpler, next(filter(fails, simpler_than(simpler)), None)
    return smallest


def simpler_than(case: Case) -> Iterator[Case]:
    """Cases with a little less than this one, the greatest steps first."""
    lengths = case.num_draft_tokens
    parts = [lengths[: len(lengths) // 2], lengths[len(lengths) // 2 :]]
    parts += [lengths[:place] + lengths[place + 1 :] for place in range(len(lengths))]
    parts += [
        (*lengths[:place], shorter, *lengths[place + 1 :])
        for place, length in enumerate(lengths)
        for shorter in {0, length // 2, length - 1}
        if 0 <= shorter < length
    ]
    yield from (evolve(case, num_draft_tokens=part) for part in parts if part != lengths)
    for size in (1, 2, 3, case.vocab_size // 2, case.vocab_size - 1):
        if 0 < size < case.vocab_size:
            yield evolve(case, vocab_size=size)
    for name in ("logits", "drafter", "dtype", "draft_dtype", "id_dtype", "features", "variation"):
        if getattr(case, name) != getattr(PLAIN, name):
            yield evolve(case, **{name: getattr(PLAIN, name)})
    for feature in sorted(case.features):
        yield evolve(case, features=case.features - {feature})
