"""The record of the proof: rows in one JSON file, what each row must show, and the tables.

A row names its part, the backend and the device.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kit.chi_square import ALPHA
from lab.proof.cases import ONE_HOT
from lab.proof.exact import EXACT
from lab.proof.runs import VIEWS

Row = dict[str, Any]

LEAST_P = 1e-6
"""The least allowed of the many p-values of a lossless policy."""


def read(path: Path) -> list[Row]:
    """Read the rows; empty if there is no file."""
    rows: list[Row] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return rows


def keep(path: Path, found: Sequence[Row]) -> None:
    """Replace the rows of a part for the same backend and kind of device."""
    others = [row for row in read(path) if _origin(row) != _origin(found[0])]
    rows = sorted(
        [*others, *map(_rounded, found)], key=lambda row: str(row["backend"] != "reference")
    )
    # One line per row, so that changes can be read.
    lines = ",\n ".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[\n {lines}\n]\n", encoding="utf-8")


def _origin(row: Row) -> tuple[str, str, str]:
    return row["part"], row["backend"], row["device"].partition(",")[0]


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    return (
        {key: _rounded(part) for key, part in value.items()} if isinstance(value, dict) else value
    )


def holds(row: Row) -> bool:
    """Whether a row shows what its policy promises."""
    return bool(PROMISES[row["part"]](row))


def _is_exact(row: Row) -> bool:
    error = _worst_error(row)
    return error <= EXACT if row["lossless"] else error > 1e-6


def _is_honest(row: Row) -> bool:
    # FLy's report is an estimate, because it judges a draft by what follows. Four digits are kept.
    estimated = row["policy"] == "fly" and row["drafter"] not in ONE_HOT
    return estimated or abs(row["enumerated"] - row["reported"]) <= 1e-4


def _follows(row: Row) -> bool:
    if row["lossless"]:
        return _least_p(row["tests"].values()) > LEAST_P
    return _least_p([row["tests"]["joint"]]) <= ALPHA


PROMISES: dict[str, Callable[[Row], bool]] = {
    "exact": _is_exact,
    "losses": _is_honest,
    "samples": _follows,
    "large": lambda row: _least_p([row]) > LEAST_P,
    "mutants": lambda row: row["value"] > row["limit"],
    "schemas": lambda row: not row["invalid"] and not row.get("unlike_plain"),
}


def _worst_error(row: Row) -> float:
    return max(float(row[view]) for view in VIEWS)


def _least_p(tests: Iterable[Row]) -> float:
    return min(float(test[kind]) for test in tests for kind in ("p_chi_square", "p_g"))


def markdown(rows: list[Row]) -> str:
    """All tables, each after a comment by which the page includes it."""
    tables = {"exact": _exact, "losses": _losses, "samples": _samples, "mutants": _mutants}
    tables["schemas"] = _schemas
    texts = (f"<!-- {name} -->\n\n{table(rows)}\n" for name, table in tables.items())
    return "".join(texts) + "<!-- end -->\n"


def _table(head: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    cells = [list(head), *map(list, lines)]
    cells.insert(1, ["---"] * len(cells[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"


def _of(rows: list[Row], part: str) -> dict[tuple[str, str], Row]:
    return {(row["policy"], row["drafter"]): row for row in rows if row["part"] == part}


def _exact(rows: list[Row]) -> str:
    known = _of([row for row in rows if row.get("lossless")], "exact")
    return _by_drafter(known, lambda row: _small(_worst_error(row)))


def _losses(rows: list[Row]) -> str:
    """The enumerated losses, and in parentheses reported ones that differ."""

    def cell(row: Row) -> str:
        enumerated, reported = (f"{row[kind]:.4f}" for kind in ("enumerated", "reported"))
        return enumerated if reported == enumerated else f"{enumerated} ({reported})"

    return _by_drafter(_of(rows, "losses"), cell)


def _by_drafter(known: dict[tuple[str, str], Row], cell: Callable[[Row], str]) -> str:
    policies, drafters = (list(dict.fromkeys(names)) for names in zip(*known, strict=True))
    lines = [[name, *[cell(known[name, drafter]) for drafter in drafters]] for name in policies]
    return _table(["policy", *drafters], lines)


def _samples(rows: list[Row]) -> str:
    """The smallest p-value of all policies, views and tests, and the least power, by backend."""
    drawn: dict[str, dict[str, list[Row]]] = {}
    for row, name, tests in _drawn(rows):
        where = f"`{row['backend']}` on {row['device']}"
        drawn.setdefault(name, {}).setdefault(where, []).extend(tests)
    places = list(dict.fromkeys(where for found in drawn.values() for where in found))
    lines = [
        [name, *[_p_and_power(found[place]) if place in found else "–" for place in places]]
        for name, found in drawn.items()
    ]
    return _table(["what is drawn", *places], lines)


def _drawn(rows: list[Row]) -> Iterator[tuple[Row, str, list[Row]]]:
    for row in rows:
        if row["part"] == "samples" and row["lossless"]:
            yield row, row["chain"], [*row["tests"].values()]
        if row["part"] == "large" and row["num_cells"] > 1:
            yield row, "151,936 tokens", [row]


def _p_and_power(tests: list[Row]) -> str:
    p_value, power = _least_p(tests), max(test["detectable"] for test in tests)
    return f"{max(test['num_draws'] for test in tests):,}: {_small(p_value)}, {power:.2%}"


def _mutants(rows: list[Row]) -> str:
    planted = {row["mutant"]: row["parts"] for row in rows if row["part"] == "mutants"}
    least = min(max(parts[view] for view in VIEWS) for parts in planted.values())
    hidden = [name for name, parts in planted.items() if parts["first"] < EXACT]
    return (
        f"Each of {len(planted)} bugs makes some probability wrong by {_small(least)} or more. "
        f"{len(hidden)} of them leave the first token perfect: {'; '.join(hidden)}.\n"
    )


def _schemas(rows: list[Row]) -> str:
    columns = ("policy", "outputs", "invalid", "unlike_plain")
    found = [row for row in rows if row["part"] == "schemas"]
    lines = [[_shown(row.get(name, "–")) for name in columns] for row in found]
    return _table([name.replace("_", " ") for name in columns], lines)


def _shown(value: int | str) -> str:
    return value if isinstance(value, str) else f"{value:,}"


def _small(value: float) -> str:
    return "0" if value == 0 else f"{value:.3f}" if value >= 1e-3 else f"{value:.0e}"
