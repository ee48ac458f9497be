"""How the inner loops of this room and of the searches are compiled: kept on disk, callable from
other threads."""

from phaze_common.kept_code import compiled

outer = compiled(nogil=True, no_cfunc_wrapper=True)  # called from Python
# called from compiled code alone
inner = compiled(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
# short ones: calls count references to every array they are given
inlined = compiled(inline="always", nogil=True)
