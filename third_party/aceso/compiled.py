"""How the inner loops of this search are compiled, and the arrays that they work on.

Whole arrays are copied and compared element by element in them: numba compiles what checks shapes
many times longer than the loop.
"""

import numpy as np
from numpy.typing import NDArray

from phaze_common.kept_code import compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

outer = compiled(nogil=True, error_model="numpy")  # called from Python
# from compiled code alone
inner = compiled(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
