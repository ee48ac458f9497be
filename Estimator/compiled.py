"""How the inner loops of this room and of the searches are compiled: kept on disk, callable from
other threads.

Compiled code counts references to the arrays that it is given, in every call and wherever it takes
one out of a tuple, and each count is a locked instruction: together they take several times as long
as the formulas. What makes no arrays and returns none is compiled without. The others say that they
count, or they would be compiled as what calls them is.
"""

from phaze_common.kept_code import compiled

outer = compiled(nogil=True, no_cfunc_wrapper=True, _nrt=True)  # called from Python
# called from compiled code alone
inner = compiled(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=True)
# the same, where they make no arrays and return none
borrowing_outer = compiled(nogil=True, no_cfunc_wrapper=True, _nrt=False)
borrowing_inner = compiled(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)
inlined = compiled(inline="always", nogil=True)  # short ones
