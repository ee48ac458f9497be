"""How the inner loops of this search are compiled.

Whole arrays are copied and compared element by element in them: numba compiles what checks shapes
many times longer than the loop.
"""

from phaze_common.kept_code import compiled

outer = compiled(nogil=True, error_model="numpy")  # called from Python
inner = compiled(
    nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
)  # from compiled code alone
