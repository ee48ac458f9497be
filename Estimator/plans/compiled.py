"""How the inner loops of this room and of the searches are compiled: kept on disk, callable from
other threads."""

from phaze_common.kept_code import compiled

# What does not say whether it counts references to arrays is compiled as what calls it first.
outer = compiled(nogil=True, no_cfunc_wrapper=True, _nrt=True)  # called from Python
# called from compiled code alone
inner = compiled(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=True)
# The same for functions that make no arrays and return none. They use those of their caller without
# counting references to them, whose code would take a sixth of the time of the compiler.
borrowing_outer = compiled(nogil=True, no_cfunc_wrapper=True, _nrt=False)
borrowing_inner = compiled(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)
# short ones: calls count references to every array they are given
inlined = compiled(inline="always", nogil=True)
