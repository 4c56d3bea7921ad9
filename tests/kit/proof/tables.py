"""The tables of the proof's page, and the summary in the terminal, from the records.

It refuses to compute: every number is in a record.
"""

from collections.abc import Iterable
from typing import Any

Record = dict[str, Any]

VIEWS = {"first": "first token", "joint": "sequence", "conditional": "after a rejection"}


def fragments(record: Record, on_gpu: list[Record]) -> dict[str, str]:
    """File name -> Markdown, for the page to include."""
    return {
        "proof-exact.md": _exact(record),
        "proof-losses.md": _losses(record),
        "proof-samples.md": _samples(record),
        "proof-large.md": _large(record),
        "proof-gpu.md": "\n".join(map(_on_gpu, on_gpu)),
        "proof-mutants.md": _mutants(record),
        "proof-lengths.md": _lengths(record),
    }


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _exact(record: Record) -> str:
    drafters = list(dict.fromkeys(row["drafter"] for row in record["exact"]))
    rows = [
        [name, *[_small(_worst(record, name, drafter)) for drafter in drafters]]
        for name in dict.fromkeys(row["policy"] for row in record["exact"])
    ]
    return table(["policy", *drafters], rows)


def _worst(record: Record, policy: str, drafter: str) -> float:
    [row] = [r for r in record["exact"] if (r["policy"], r["drafter"]) == (policy, drafter)]
    return max(float(row[view]) for view in VIEWS)


def _losses(record: Record) -> str:
    head = ["policy", "drafter", "enumerated", "reported"]
    return table(
        head,
        (
            [row["policy"], row["drafter"], f"{row['enumerated']:.4f}", f"{row['reported']:.4f}"]
            for row in record["losses"]
        ),
    )


def _samples(record: Record) -> str:
    head = ["policy", "drafter", "view", "draws", "cells", "p, χ²", "p, G", "would notice"]
    rows = [
        [
            row["policy"] if row["lossless"] else f"{row['policy']} (lossy)",
            row["chain"],
            VIEWS[view],
            f"{test['num_draws']:,}",
            str(test["num_cells"]),
            _probability(test["p_chi_square"]),
            _probability(test["p_g"]),
            _share(test["detectable"]),
        ]
        for row in record["samples"]
        for view, test in row["tests"].items()
        if row["lossless"] or (view == "joint" and row["chain"] == "draft model")
    ]
    return f"{_where(record)}\n\n{table(head, rows)}"


def _large(record: Record) -> str:
    head = ["drawn by", "binned by", "draws", "cells", "p, χ²", "p, G", "would notice"]
    rows = [
        [
            row["way"],
            row["bins"],
            f"{row['num_draws']:,}",
            f"{row['num_cells']:,}",
            _probability(row["p_chi_square"]),
            _probability(row["p_g"]),
            _share(row["detectable"]),
        ]
        for row in record["large"]
        if row["num_cells"] > 1
    ]
    return f"{_where(record)}\n\n{table(head, rows)}"


def _where(record: Record) -> str:
    machine = record["machine"]
    where = f"{machine['device']}, {machine['date']}"
    return f"Backend `{record['backend']}` on {where}:"


def _on_gpu(record: Record) -> str:
    """The smallest p-value of all views, bins and both tests, and the least power."""
    head = ["what is drawn", "draws", "smallest p", "of", "would notice"]
    groups = [
        (f"{row['policy']}, {row['chain']}", list(row["tests"].values()))
        for row in record["samples"]
        if row["lossless"]
    ]
    ways = dict.fromkeys(row["way"] for row in record["large"])
    for way in ways:
        tests = [row for row in record["large"] if row["way"] == way and row["num_cells"] > 1]
        groups.append((f"{way}, 151,936 tokens", tests))
    rows = [_worst_of(name, tests) for name, tests in groups]
    return f"{_where(record)}\n\n{table(head, rows)}"


def _worst_of(name: str, tests: list[Record]) -> list[str]:
    p_values = [test[kind] for test in tests for kind in ("p_chi_square", "p_g")]
    return [
        name,
        f"{max(test['num_draws'] for test in tests):,}",
        _probability(min(p_values)),
        f"{len(p_values)} tests",
        _share(max(test["detectable"] for test in tests)),
    ]


def _mutants(record: Record) -> str:
    head = ["planted bug", "check that fails", "first token", "sequence", "token given token", "p"]
    rows = []
    for row in record["mutants"]:
        parts = row["parts"] or {}
        errors = [_small(parts[view]) if view in parts else "" for view in VIEWS]
        if not parts:
            errors[0] = f"{row['value']:.0f} wrong"
        p_value = "" if row["p_value"] is None else _probability(row["p_value"])
        rows.append([row["mutant"], row["check"], *errors, p_value])
    return table(head, rows)


def _lengths(record: Record) -> str:
    head = ["temperature", "K", "drafts", "probabilistic", "block", "more by", "in share"]
    rows = [
        [
            f"{row['temperature']}",
            str(row["num_spec_tokens"]),
            f"{row['num_drafts']:,}",
            f"{row['lengths']['probabilistic']:.3f}",
            f"{row['lengths']['block']:.3f}",
            f"{row['gain']:.3f} ± {row['gain_error']:.3f}",
            f"{row['gain'] / row['lengths']['probabilistic']:.1%}",
        ]
        for row in record["lengths"]
    ]
    return table(head, rows)


def _small(value: float) -> str:
    return "0" if value == 0 else f"{value:.3f}" if value >= 1e-3 else f"{value:.0e}"


def _probability(value: float) -> str:
    return f"{value:.3f}" if value >= 1e-3 else "< 1e-300" if value < 1e-300 else f"{value:.0e}"


def _share(value: float) -> str:
    return f"{value:.2%}" if value >= 1e-3 else f"{value:.3%}"
