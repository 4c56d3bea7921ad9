"""Prompts that need no file: beginnings in the manner of what the bundled pair has read.

None is taken from those texts.
"""

from itertools import product

_SPEAKERS = ("ROMEO:\n", "KING RICHARD III:\n", "First Citizen:\n", "GLOUCESTER:\n")
_PROSE = (
    '"My dear fellow," said Sherlock Holmes, "',
    '"I have no doubt," said he, "that ',
    "It was late in the evening when ",
    "The lady rose from her chair, and ",
    "In the spring of that year ",
    "The Constitution of the United States provided that ",
    "The merchants and planters thought that ",
    "Between the North and the South ",
    "After the election of the President ",
)
_WORDS = ("what", "the", "we", "there", "in all", "it was not", "my good friend", "they who had")

PLAYS = tuple(speaker + words.capitalize() for speaker, words in product(_SPEAKERS, _WORDS))
PROSE = tuple(opening + words for opening, words in product(_PROSE, _WORDS))
