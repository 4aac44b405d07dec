"""What is fitted: the counts of words in documents, how they are read, how they are cut.

`Corpus` is the only form in which documents go further; `readers` fills one from a file or a
folder, `shard` cuts one into what the workers hold. Importing this package imports numpy and
nothing heavier: numba, scipy and scikit-learn are imported by the functions that need them.
"""

from esvi_shm.corpus.corpus import Corpus, as_corpus
from esvi_shm.corpus.options import ReadOptions
from esvi_shm.corpus.readers import known_formats, read_corpus

__all__ = ["Corpus", "ReadOptions", "as_corpus", "known_formats", "read_corpus"]
