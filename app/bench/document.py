"""The figures of docs/benchmark.md: policies on one pair, in the tables in which the field reports.

`python -m acceptor.app.bench.document` measures and writes docs/data/benchmark-NAME.json, part by
part, and the tables beside it. This module refuses to write what it has not measured, but for
`--read`.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from shutil import copyfile
from time import perf_counter
from typing import Any

import click
from attrs import evolve, field, frozen
from cattrs import Converter
from cattrs.errors import BaseValidationError

from ...core.errors import AcceptorError, ConfigError
from ...core.sampling_params import SamplingParams
from ..config import DrafterConfig, ModelsConfig
from ..ngram_drafter import NgramDrafter
from ..policies import POLICIES, PolicySettings, SyntheticSettings
from .document_page import record_file, write_page
from .document_tables import write_tables
from .files import make_room, read_object, write_file
from .pair import Pair, load_pair
from .progress import OnStep, progress_bars
from .results import BenchResults, first_problem
from .run import Begin, Bench
from .sweep import Load, Sweep

LOSSLESS = ("strict", "strict-coupled", "probabilistic", "block")
SET_RATES = (0.24, 0.6, 0.69, 0.9)
NUM_SPEC_TOKENS = 3
SYNTHETIC_LOAD = Load(
    num_requests=128, max_concurrency=32, output_len=400, warm_up=0, ignore_eos=True
)
"""Long outputs: the last drafts of each are shorter, and accepted at a higher rate."""

GREEDY_SHARES = {"all greedy": 1.0, "half greedy": 0.5, "all sampled": 0.0}


@frozen(kw_only=True)
class Document:
    """Everything that the page shows of one pair.

    Attributes:
        datasets: acceptance at temperature 1, by set of prompts.
        lengths: policies at several K, on the built-in prompts.
        greedy: the same requests, of which more or fewer are greedy.
        synthetic: set rates.
    """

    datasets: Mapping[str, BenchResults]
    lengths: BenchResults
    greedy: Mapping[str, BenchResults]
    synthetic: BenchResults


@frozen(eq=False, kw_only=True)
class Measurement:
    """What is measured, and how much of it.

    Attributes:
        pair: the models.
        backend: what verifies.
        load: where acceptance is wanted; how many requests, how long, how many at once.
        timed_load: where speed is wanted, too.
        files: name -> prompts, beside the built-in ones.
        lengths: each K of the sweep over K.
        begin: shows progress.
    """

    pair: Pair
    backend: str
    load: Load
    files: Mapping[str, Path]
    lengths: tuple[int, ...]
    begin: Begin
    timed_load: Load
    policies: dict[str, PolicySettings] = field(init=False)

    @policies.default
    def _make_policies(self) -> dict[str, PolicySettings]:
        return {name: POLICIES[name]() for name in LOSSLESS}

    def parts(self) -> dict[str, Callable[[], Any]]:
        """What measures each field of a `Document`, what matters most first."""
        return {
            "lengths": self._lengths,
            "datasets": lambda: dict(self._datasets()),
            "greedy": lambda: dict(self._greedy()),
            "synthetic": self._synthetic,
        }

    def _lengths(self) -> BenchResults:
        return self._bench(self.timed_load, (0, *self.lengths), self.policies).run(self.begin)

    def _greedy(self) -> Iterator[tuple[str, BenchResults]]:
        for name, share in GREEDY_SHARES.items():
            load = evolve(self.load, greedy_share=share)
            yield name, self._run(load, (NUM_SPEC_TOKENS,), self.policies)

    def _synthetic(self) -> BenchResults:
        # A set rate does not depend on the models: the draft verifies itself, as it is cheaper.
        assert not isinstance(self.pair.draft, NgramDrafter | None)
        cheap = evolve(self, pair=evolve(self.pair, target=self.pair.draft))
        load = evolve(SYNTHETIC_LOAD, greedy_share=1.0)
        return cheap._run(load, (NUM_SPEC_TOKENS,), _synthetic())  # noqa: SLF001, of its own kind

    def _datasets(self) -> Iterator[tuple[str, BenchResults]]:
        lengths = (NUM_SPEC_TOKENS,)
        for category in ("plays", "prose"):
            yield category, self._run(self.load, lengths, self.policies, categories=[category])
        for name, file in self.files.items():
            load = evolve(self.load, prompts=file.name)
            yield name, self._run(load, lengths, self.policies, file=file)

    def _run(
        self,
        load: Load,
        lengths: tuple[int, ...],
        policies: dict[str, PolicySettings],
        **source: Any,
    ) -> BenchResults:
        """Acceptance alone."""
        bench = self._bench(load, lengths, policies, **source)
        return evolve(bench, is_timed=False).run(self.begin)

    def _bench(
        self,
        load: Load,
        lengths: tuple[int, ...],
        policies: dict[str, PolicySettings],
        **source: Any,
    ) -> Bench:
        return Bench(
            pair=self.pair,
            sweep=Sweep(
                policies=policies,
                num_spec_tokens=lengths,
                temperatures=(1.0,),
                backends=(self.backend,),
            ),
            load=load,
            sampling=SamplingParams(),
            prompts=self.pair.reader.prompts(load, **source),
        )


def _synthetic() -> dict[str, PolicySettings]:
    return {f"synthetic {rate:g}": SyntheticSettings(acceptance_rate=rate) for rate in SET_RATES}


def measure_into(file: Path, measurement: Measurement, report: Callable[[str], None]) -> None:
    """Measure every part that a file does not hold yet, and write it after each.

    Raises:
        AcceptorError: a model, a policy or the backend is unfit, or the file holds something else.
    """
    known = read_object(file) if file.exists() else {}
    for name, measure in measurement.parts().items():
        if name not in known:
            began = perf_counter()
            known[name] = Converter().unstructure(measure())
            write_file(file, json.dumps(known, ensure_ascii=False) + "\n")
            report(f"{name}: {perf_counter() - began:.0f} s")


def read_document(path: Path) -> Document:
    """What was measured before.

    Raises:
        ConfigError: the file cannot be read, or does not hold all parts.
    """
    content = read_object(path)
    try:
        return Converter().structure(content, Document)
    except (BaseValidationError, TypeError, ValueError) as error:
        problem = first_problem(error)
        raise ConfigError(f"{path}: expected a measured document: {problem}") from None


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--name", default="bundled", show_default=True, help="Of the pair, in file names.")
@click.option("--target", help="Directory.  [default: bundled]")
@click.option("--draft", help="Directory.  [default: bundled]")
@click.option("--device", default="cpu", show_default=True)
@click.option("--backend", default="reference", show_default=True)
@click.option("--prompts", "files", type=(str, _FILE), multiple=True, help="NAME FILE.jsonl")
@click.option("--num-requests", type=int, default=24, show_default=True)
@click.option("--output-len", type=int, default=48, show_default=True)
@click.option(
    "--timed", type=(int, int), help="Requests and tokens where speed is wanted.  [default: as all]"
)
@click.option("--max-concurrency", type=int, default=8, show_default=True)
@click.option("--k", "lengths", type=int, multiple=True, default=(2, 4, 8), show_default=True)
@click.option("--record", type=_FILE, help="What training wrote: makes a page of this pair.")
@click.option("--read", is_flag=True, help="Write the tables of an earlier measurement again.")
@click.option("--resume", is_flag=True, help="Measure only what an earlier call did not come to.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("docs/data"))
def main(
    name: str,
    record: Path | None,
    read: bool,
    resume: bool,
    out: Path,
    **options: Any,
) -> None:
    """Measure one pair and write its tables."""
    measured = out / f"benchmark-{name}.json"
    try:
        make_room(measured)
        if record is not None:
            copyfile(record, record_file(name, out))
        if not (read or resume):
            measured.unlink(missing_ok=True)
        if not read:
            with progress_bars(shown=True) as begin:
                told = _telling(begin, perf_counter())
                measure_into(measured, _measurement(told, **options), click.echo)
        write_tables(read_document(measured), name, out)
    except AcceptorError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
    if record_file(name, out).exists():
        write_page(name, out)


def _telling(begin: Begin, began: float) -> Begin:
    """Say what begins when: a run that somebody else watches has no bars."""

    def tell(name: str, num_requests: int) -> OnStep:
        click.echo(f"  {name} after {perf_counter() - began:.0f} s")
        return begin(name, num_requests)

    return tell


def _measurement(
    begin: Begin,
    *,
    files: tuple[tuple[str, Path], ...],
    lengths: tuple[int, ...],
    backend: str,
    timed: tuple[int, int] | None,
    **options: Any,
) -> Measurement:
    models = ModelsConfig(**{role: options[role] for role in ("target", "draft", "device")})
    amount = {key: options[key] for key in ("num_requests", "output_len", "max_concurrency")}
    load = Load(**amount, ignore_eos=True)
    num_requests, output_len = timed or (load.num_requests, load.output_len)
    return Measurement(
        pair=load_pair(models, DrafterConfig()),
        backend=backend,
        load=load,
        files=dict(files),
        lengths=lengths,
        begin=begin,
        timed_load=evolve(load, num_requests=num_requests, output_len=output_len),
    )


if __name__ == "__main__":
    main()
