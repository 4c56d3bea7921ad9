"""Philox4x32-10 in Python's integers, as its paper writes it."""

MASK32 = 0xFFFFFFFF

Words = tuple[int, int, int, int]


def philox(counter: Words, key: tuple[int, int]) -> Words:
    """The four random words of a counter."""
    key_0, key_1 = key
    for _ in range(10):
        high_0, low_0 = divmod(0xD2511F53 * counter[0], 2**32)
        high_1, low_1 = divmod(0xCD9E8D57 * counter[2], 2**32)
        counter = (high_1 ^ counter[1] ^ key_0, low_1, high_0 ^ counter[3] ^ key_1, low_0)
        key_0 = (key_0 + 0x9E3779B9) & MASK32
        key_1 = (key_1 + 0xBB67AE85) & MASK32
    return counter


def word(
    seed: int, position: int, draft_index: int, stream: int, level: int, candidate: int
) -> int:
    """The random word of one candidate, by the contract's counter and key."""
    counter = (candidate // 4, position, 4 * stream + level, draft_index)
    return philox(counter, (seed & MASK32, seed >> 32))[candidate % 4]
