"""What machine code a kernel became: spills, size, and instructions a streamed logit.

Needs a disassembler, which CUDA and the Triton wheel bring along, but no GPU. This module refuses
to say how long anything takes.
"""

import re
import shutil
import subprocess
import tempfile
from collections import deque
from importlib.util import find_spec
from pathlib import Path

from attrs import frozen

LOGITS_PER_LANE = 16
_STREAMED = re.compile(r"@!?P\d (LDG\.E\.NA|LDGSTS\.E\.BYPASS)\.128")
_BLOCK_DONE = re.compile(r"\bC?REDUX\.MAX\.S32\b")
"""A warp knows its largest logit; the C is sm_100's."""
_LANES_DONE = re.compile(r"\bV?IMNMX\.U32\b.*!PT$")
"""Where no warp asks for that: each lane knows its own."""
_LINE = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
_BRANCH = re.compile(r"(@!?U?P\d+\s+)?BRA\s+(U?!?U?P\d+,\s*|!?UP\d+,\s*)?0x([0-9a-f]+)$")
_LEAVES = re.compile(r"(@!?U?P\d+\s+)?(EXIT|RET)\b")


def spilled_bytes(log: str, kernel: str) -> int:
    """Bytes that a kernel and the functions it calls store because registers are missing."""
    entry = log[log.index(f"Compiling entry function '{kernel}'") :]
    return sum(int(count) for count in re.findall(r"(\d+) bytes spill stores", entry))


def find_disassembler() -> str | None:
    """CUDA's `cuobjdump`, if there is one."""
    on_path = shutil.which("cuobjdump")
    spec = find_spec("triton")
    if on_path is not None or spec is None or spec.origin is None:
        return on_path
    bundled = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    return str(bundled) if bundled.exists() else None


@frozen
class Assembly:
    """The instructions of a kernel and of all it calls, in the order of their addresses.

    Attributes:
        addresses: one of each.
        texts: the same, with predicates and operands.
    """

    addresses: tuple[int, ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, code: bytes, disassembler: str) -> "Assembly":
        """Disassemble a cubin."""
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(code)
            file.flush()
            command = [disassembler, "-sass", file.name]
            listing = subprocess.run(  # noqa: S603 (CUDA's own tool, a file of ours)
                command, check=True, capture_output=True, text=True
            ).stdout
        found = [m.groups() for m in map(_LINE.match, listing.splitlines()) if m]
        return cls(tuple(int(a, 16) for a, _ in found), tuple(text for _, text in found))

    @property
    def code_bytes(self) -> int:
        """How much code there is."""
        return 16 * len(self.addresses)

    @property
    def streams(self) -> bool:
        """Whether there is a streaming loop."""
        return bool(self._streaming_loops())

    def instructions_per_logit(self) -> float:
        """Of the streaming loop: the fewest, once around it, that finish every block of a batch."""
        done = self._blocks_done(*self._streaming_loop())
        steps = zip(done, [*done[1:], done[0]], strict=True)
        passed = [self._distance(a, b) for a, b in steps]
        if None in passed:
            raise ValueError("expected one loop around the streaming loads, found several")
        return sum(filter(None, passed)) / len(done) / LOGITS_PER_LANE

    def vector_loads(self) -> int:
        """How many 16-byte loads a turn of the streaming loop issues, none of which waits."""
        begin, end = self._streaming_loop()
        return sum(bool(_STREAMED.search(text)) for text in self.texts[begin : end + 1])

    def _streaming_loop(self) -> tuple[int, int]:
        """The smallest one."""
        _, first, last = min(self._streaming_loops())
        return first, last

    def _streaming_loops(self) -> list[tuple[int, int, int]]:
        """Loops that load blocks and finish some, again and again: (length, first, last)."""
        loops = []
        for last, (address, text) in enumerate(zip(self.addresses, self.texts, strict=True)):
            branch = _BRANCH.search(text)
            if branch is None or int(branch[3], 16) > address:
                continue
            first = self.addresses.index(int(branch[3], 16))
            body = self.texts[first : last + 1]
            if any(map(_STREAMED.search, body)) and self._blocks_done(first, last):
                loops.append((last - first, first, last))
        return loops

    def _blocks_done(self, first: int, last: int) -> list[int]:
        """Where a block is finished on a way that comes back; out-of-line code may lie between."""
        return self._where(_BLOCK_DONE, first, last) or self._where(_LANES_DONE, first, last)

    def _where(self, done: re.Pattern[str], first: int, last: int) -> list[int]:
        found = (i for i in range(first, last + 1) if done.search(self.texts[i]))
        return [i for i in found if self._distance(i, i) is not None]

    def _next(self, place: int) -> list[int]:
        text = self.texts[place]
        branch = _BRANCH.match(text)
        if branch is None:
            ends = (leaves := _LEAVES.match(text)) is not None and leaves[1] is None
            return [] if ends else [place + 1]
        target = self.addresses.index(int(branch[3], 16))
        return [target] if branch[1] is None and branch[2] is None else [target, place + 1]

    def _distance(self, begin: int, end: int) -> int | None:
        seen, queue = {begin}, deque([(begin, 0)])
        while queue:
            place, distance = queue.popleft()
            for following in self._next(place):
                if following == end:
                    return distance + 1
                if following not in seen and following < len(self.texts):
                    seen.add(following)
                    queue.append((following, distance + 1))
        return None
