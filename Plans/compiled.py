"""How the inner loops of this room and of the searches are compiled: kept on disk, callable from other threads."""

from numba import njit

outer = njit(cache=True, nogil=True)  # called from Python
inner = njit(cache=True, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)  # called from compiled code alone
inlined = njit(inline="always", cache=True, nogil=True)  # short ones: calls count references to every array they are given
