"""The tables of the proof's page, from the record."""

from collections.abc import Iterable, Iterator
from typing import Any

from kit.proof.runs import VIEWS

Record = dict[str, Any]


def markdown(record: Record) -> str:
    """All tables, each behind a comment that names it for the page to include."""
    parts = {
        "exact": _exact(record),
        "losses": _losses(record),
        "samples": _samples([record, *record["elsewhere"]]),
        "mutants": _mutants(record),
        "lengths": _lengths(record),
    }
    return (
        "".join(f"<!-- {name} -->\n\n{text}\n" for name, text in parts.items()) + "<!-- end -->\n"
    )


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
    known = {(row["policy"], row["drafter"]): row for row in record["losses"]}
    policies, drafters = (list(dict.fromkeys(names)) for names in zip(*known, strict=True))
    rows = [
        [name, kind, *[f"{known[name, drafter][kind]:.4f}" for drafter in drafters]]
        for name in policies
        for kind in ("enumerated", "reported")
    ]
    return table(["policy", "", *drafters], rows)


def _samples(records: list[Record]) -> str:
    """By backend the smallest p-value of all views, bins and both tests, and the least power."""
    drawn = [dict(_drawn(record)) for record in records]
    names = dict.fromkeys(name for of_record in drawn for name in of_record)
    rows = [[name, *[of_record.get(name, "–") for of_record in drawn]] for name in names]
    return table(["what is drawn", *map(_where, records)], rows)


def _where(record: Record) -> str:
    machine = record["machine"]
    return f"`{record['backend']}` on {machine['device']}, {machine['date']}"


def _drawn(record: Record) -> Iterator[tuple[str, str]]:
    for row in record["samples"]:
        if row["lossless"]:
            yield f"{row['policy']}, {row['chain']}", _worst_of(list(row["tests"].values()))
    for way in dict.fromkeys(row["way"] for row in record["large"]):
        tests = [row for row in record["large"] if row["way"] == way and row["num_cells"] > 1]
        yield f"{way}, 151,936 tokens", _worst_of(tests)


def _worst_of(tests: list[Record]) -> str:
    num_draws = max(test["num_draws"] for test in tests)
    p_value = min(test[kind] for test in tests for kind in ("p_chi_square", "p_g"))
    power = max(test["detectable"] for test in tests)
    return f"{num_draws:,}: {_probability(p_value)}, {_share(power)}"


def _mutants(record: Record) -> str:
    head = ["planted bug", "check that fails", "first token", "later tokens"]
    rows = []
    for row in record["mutants"]:
        parts = row["parts"]
        errors = [f"{row['value']:.0f} wrong", ""]
        if parts:
            errors = [_small(parts["first"]), _small(max(parts["joint"], parts["conditional"]))]
        rows.append([row["mutant"], row["check"], *errors])
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
