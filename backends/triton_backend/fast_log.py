"""The hardware's logarithm; refuses arguments whose logarithm must keep relative precision near 0.

It is off by at most 2**-22 in absolute terms, and a tenth of the instructions of `tl.log`, which
matters in code that runs once: fetching it takes longer than running it.
"""

import triton
import triton.language as tl
from triton import knobs
from triton.language.extra.cuda import libdevice

LN_2 = tl.constexpr(0.6931471805599453)
INTERPRETED = tl.constexpr(knobs.runtime.interpret)


@triton.jit
def fast_log(x):
    """Natural logarithm of float32, elementwise."""
    if INTERPRETED:
        result = tl.log(x)
    else:
        result = LN_2 * libdevice.fast_log2f(x)
    return result
