"""What Triton's compiler does not carry through a loop, and its interpreter does.

A name that stood for another one's tensor before a loop, and is given that other one inside it,
keeps what it had before: the compiler takes it for unchanged. Only a device shows that.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [
    *(ROOT / "backends" / "triton_backend").rglob("*.py"),
    *(ROOT / "adapters" / "few_tokens").glob("*.py"),
]


def copies(tree: ast.AST) -> Iterator[ast.Assign]:
    """Each `a = b`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        if isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Name):
            yield node


def names_of(copy: ast.Assign) -> frozenset[str]:
    return frozenset(node.id for node in ast.walk(copy) if isinstance(node, ast.Name))


def lost_names(source: str) -> set[frozenset[str]]:
    """Names of one tensor before a loop that are copied inside it."""
    lost = set()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            loops = [node for node in ast.walk(function) if isinstance(node, ast.While | ast.For)]
            inside = {copy for loop in loops for copy in copies(loop)}
            before = {names_of(copy) for copy in copies(function) if copy not in inside}
            lost |= before & {names_of(copy) for copy in inside}
    return lost


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_name_is_lost_in_a_loop(path: Path) -> None:
    assert lost_names(path.read_text(encoding="utf-8")) == set()


def test_a_lost_name_is_found() -> None:
    source = "def f(x):\n  b = x * 0\n  a = b\n  while a < x:\n    b = a\n    a += 1\n  return b\n"
    assert lost_names(source) == {frozenset("ab")}
