"""What a session on a GPU runs, and in which order: what is timed first, alone on the device."""

from collections.abc import Sequence
from pathlib import Path

from kit.gpu_session.steps import Step

BENCH = "acceptor.app.bench.kernels"
_HEADLINE_ROWS: Sequence[tuple[str, ...]] = (
    (),
    ("--top-k", "50", "--top-p", "0.9"),
    ("--top-p", "0.9"),
    ("--temperature", "0"),
    ("--policy", "strict"),
    ("--policy", "block"),
)


def compile_first(backends: Sequence[str]) -> list[Step]:
    """Each row of the headline once, side by side: compiling takes most of a cold benchmark."""
    once = ("--count", "1", "--sets", "1", "--no-check")
    return [
        Step(f"compile-{backend}-{number}", (BENCH, "--backend", backend, *once, *row))
        for backend in backends
        for number, row in enumerate(_HEADLINE_ROWS)
    ]


def benchmark(backends: Sequence[str], folder: Path) -> list[Step]:
    """The headline, and the worst inputs."""
    chosen = [word for backend in backends for word in ("--backend", backend)]
    files = ("--json", str(folder / "kernels.json"))
    return [Step("kernels", (BENCH, "--headline", "--worst", *chosen, *files))]


def engine(backends: Sequence[str], folder: Path) -> list[Step]:
    """The engine, verified by the first of the backends."""
    return [Step("engine", ("lab.engine_speed", "--backend", backends[0], "--out", str(folder)))]


def proof(backends: Sequence[str], out: Path, seconds: float) -> list[Step]:
    """The law, sampled: one backend after the other, so that each has the device for itself."""
    chosen = [word for backend in backends for word in ("--backend", backend)]
    limits = ("--device", "cuda", "--seconds", f"{min(60.0, 0.2 * seconds):.0f}")
    return [Step("proof", ("kit.proof", *chosen, *limits, "--out", str(out)))]


def checks(backends: Sequence[str], folder: Path, seconds: float, workers: int) -> list[Step]:
    """Tests, equivalence and sanitizers, which share the device and all cores."""
    share = max(workers // 3, 1)
    record = ("-p", "kit.gpu_record", "--gpu-record", str(folder / "gpu.json"))
    # What else is installed beside a GPU may warn: pytest-benchmark does so about workers.
    calm = ("-W", "default", "-p", "no:benchmark", "--continue-on-collection-errors")
    pytest = ("pytest", "-m", "gpu", "-q", "-n", str(share), "--dist", "worksteal", *calm)
    engine = ("tests/app/test_engine_on_gpu.py", "tests/app/test_engine_capture.py")
    tests = ("tests/backends", "tests/adapters", *engine)
    steps = [Step("gpu-tests", (*pytest, *record, *tests))]
    workers = share * len(backends)
    limits = ("--workers", str(workers), "--seconds", f"{0.9 * seconds:.0f}")
    steps.append(_equivalence(backends, folder, limits))
    for backend in backends:
        file = str(folder / "gpu.json")
        limit = f"{0.45 * seconds:.0f}"
        steps.append(
            Step(
                f"sanitize-{backend}",
                ("kit.sanitize", "--backend", backend, "--seconds", limit, "--json", file),
            )
        )
    return steps


def _equivalence(backends: Sequence[str], folder: Path, limits: Sequence[str]) -> Step:
    """One run of the last backend, the first beside it, if there is another."""
    backend = backends[-1]
    beside = ("--beside", backends[0]) if len(backends) > 1 else ()
    file = str(folder / f"equivalence-{backend}.json")
    wishes = ("--backend", backend, *beside, *limits, "--json", file)
    return Step(
        f"equivalence-{backend}", ("acceptor.backends.conformance", "--batches", "10000", *wishes)
    )
