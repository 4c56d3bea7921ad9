"""Seeds whose random words are the smallest or the largest there are, found by trying them all.

A uniform that is computed carelessly rounds to 0 or 1 only there. It refuses to hold anything else.
"""

from ...core.randomness import Level, Stream

POSITION = 1
"""What all of them are for, at draft index 1."""

WORDS_0: dict[tuple[Stream, Level], tuple[int, int]] = {
    (Stream.TARGET, Level.BLOCK): (887881469, 0),
    (Stream.TARGET, Level.TOKEN): (1000577470, 1),
    (Stream.DRAFT, Level.BLOCK): (164370637, 0),
    (Stream.DRAFT, Level.TOKEN): (3497259954, 1),
    (Stream.RECOVER, Level.BLOCK): (457067047, 1),
    (Stream.RECOVER, Level.TOKEN): (2559572328, 0),
}
"""(seed, candidate) whose word at `POSITION` and draft index 1 is 0: the smallest exponential."""

WORDS_MAX: dict[tuple[Stream, Level], tuple[int, int]] = {
    (Stream.TARGET, Level.BLOCK): (36842616, 0),
    (Stream.TARGET, Level.TOKEN): (249934942, 0),
    (Stream.DRAFT, Level.BLOCK): (2030957378, 3),
    (Stream.DRAFT, Level.TOKEN): (1866196512, 2),
    (Stream.RECOVER, Level.BLOCK): (1735343548, 3),
    (Stream.RECOVER, Level.TOKEN): (585051937, 1),
}
"""The same for 2**32 - 1: the largest exponential."""

SEED_OF_LOWEST_UNIFORM = 4960468
"""Its first acceptance uniform at `POSITION` is 2**-24."""

SEED_OF_HIGHEST_UNIFORM = 1560275
"""The same for 1 - 2**-24."""
