"""The figures of docs/benchmark.md: policies on one pair, in the tables in which the field reports.

`python -m acceptor.app.bench.document` measures and writes docs/data/benchmark-NAME.json and the
tables beside it. This module refuses to write what it has not measured, but for `--read`.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from shutil import copyfile
from typing import Any

import click
from attrs import asdict, evolve, field, frozen
from cattrs import Converter

from ...core.sampling_params import SamplingParams
from ..config import DrafterConfig, ModelsConfig
from ..ngram_drafter import NgramDrafter
from ..policies import POLICIES, PolicySettings, SyntheticSettings
from ..tuning.measure import Plan
from .document_page import record_file, write_page
from .document_tables import write_tables
from .pair import Pair, load_pair
from .progress import progress_bars
from .requests import make_arrivals
from .results import BenchResults
from .run import Begin, Bench
from .sweep import Load, Sweep
from .timed_steps import TimedStep, step_times

LOSSLESS = ("strict", "strict-coupled", "probabilistic", "block")
SET_RATES = (0.24, 0.6, 0.69, 0.9)
NUM_SPEC_TOKENS = 3
SYNTHETIC_LOAD = Load(
    num_requests=32, max_concurrency=32, output_len=400, warm_up=0, ignore_eos=True
)
"""Long outputs: the last drafts of each are shorter, and accepted at a higher rate."""

TIMED_BATCHES = (1, 8)
TIMED_STEPS = 60
GREEDY_SHARES = {"all greedy": 1.0, "half greedy": 0.5, "all sampled": 0.0}


@frozen(kw_only=True)
class Document:
    """Everything that the page shows of one pair.

    Attributes:
        datasets: acceptance at temperature 1, by set of prompts.
        lengths: policies at several K, on the built-in prompts.
        greedy: the same requests, of which more or fewer are greedy.
        synthetic: set rates.
        steps: what verification costs, by how many requests are greedy.
    """

    datasets: Mapping[str, BenchResults]
    lengths: BenchResults
    greedy: Mapping[str, BenchResults]
    synthetic: BenchResults
    steps: tuple[TimedStep, ...]


@frozen(eq=False, kw_only=True)
class Measurement:
    """What is measured, and how much of it.

    Attributes:
        pair: the models.
        backend: what verifies.
        load: of every part; how many requests, how long, how many at once.
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
    policies: dict[str, PolicySettings] = field(init=False)

    @policies.default
    def _make_policies(self) -> dict[str, PolicySettings]:
        return {name: POLICIES[name]() for name in LOSSLESS}

    def document(self) -> Document:
        """All of it, one part after the other."""
        return Document(
            datasets=dict(self._datasets()),
            lengths=self._run(self.load, (0, *self.lengths), self.policies),
            greedy={
                name: self._run(
                    evolve(self.load, greedy_share=share), (NUM_SPEC_TOKENS,), self.policies
                )
                for name, share in GREEDY_SHARES.items()
            },
            synthetic=self._synthetic(),
            steps=tuple(self._steps()),
        )

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

    def _steps(self) -> Iterator[TimedStep]:
        plan = Plan(
            lengths=(NUM_SPEC_TOKENS,),
            concurrencies=TIMED_BATCHES,
            num_steps=TIMED_STEPS,
            cpu_time=self.pair.target.device.type == "cpu",
        )
        for (name, share), policy in product(GREEDY_SHARES.items(), ("strict", "probabilistic")):
            load = evolve(self.load, greedy_share=share, max_concurrency=max(TIMED_BATCHES))
            bench = self._bench(load, (NUM_SPEC_TOKENS,), {policy: self.policies[policy]})
            arrivals = make_arrivals(load, bench.prompts, SamplingParams())
            for num_reqs, times in step_times(bench, arrivals, plan):
                yield TimedStep(requests=name, policy=policy, num_reqs=num_reqs, times=times)

    def _run(
        self,
        load: Load,
        lengths: tuple[int, ...],
        policies: dict[str, PolicySettings],
        **source: Any,
    ) -> BenchResults:
        return self._bench(load, lengths, policies, **source).run(self.begin)

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


def read_document(path: Path) -> Document:
    """What was measured before."""
    return Converter().structure(json.loads(path.read_text(encoding="utf-8")), Document)


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
@click.option("--max-concurrency", type=int, default=8, show_default=True)
@click.option("--k", "lengths", type=int, multiple=True, default=(2, 4, 8), show_default=True)
@click.option("--record", type=_FILE, help="What training wrote: makes a page of this pair.")
@click.option("--read", is_flag=True, help="Write the tables of an earlier measurement again.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("docs/data"))
def main(
    name: str,
    files: tuple[tuple[str, Path], ...],
    lengths: tuple[int, ...],
    backend: str,
    record: Path | None,
    read: bool,
    out: Path,
    **options: Any,
) -> None:
    """Measure one pair and write its tables."""
    out.mkdir(parents=True, exist_ok=True)
    if record is not None:
        copyfile(record, record_file(name, out))
    measured = out / f"benchmark-{name}.json"
    if not read:
        models = ModelsConfig(**{role: options[role] for role in ("target", "draft", "device")})
        load = Load(
            **{key: options[key] for key in ("num_requests", "output_len", "max_concurrency")},
            ignore_eos=True,
        )
        with progress_bars(shown=True) as begin:
            document = Measurement(
                pair=load_pair(models, DrafterConfig()),
                backend=backend,
                load=load,
                files=dict(files),
                lengths=lengths,
                begin=begin,
            ).document()
        text = json.dumps(asdict(document), ensure_ascii=False)
        measured.write_text(text + "\n", encoding="utf-8")
    write_tables(read_document(measured), name, out)
    if record_file(name, out).exists():
        write_page(name, out)


if __name__ == "__main__":
    main()
