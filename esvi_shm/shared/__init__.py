"""Shared memory: segments and their tables of arrays, atomics, rings.

This room knows nothing of topics: it moves int64 ids between processes and owns the memory that
they see. `segments` owns all of it, `table` says which array lies where, `ring` carries ids from
one process to another, `atomics` is the four instructions that all of this rests on.
"""
