"""Extreme stochastic variational inference on shared memory.

Importing the package imports nothing heavy: a spawned worker imports it too.
"""

__version__ = "0.1.0"
