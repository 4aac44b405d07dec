"""The engine: worker processes, travelling blocks, and the home that waits for them."""
