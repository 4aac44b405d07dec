"""Fit topics to a handful of documents, look at them, save them, load them again."""

import sys
import tempfile
from pathlib import Path

import esvi_shm
from esvi_shm import LDA

SEA = "ship sea salt sail wave ship harbour sea".split()
WOOD = "tree path leaf wood hill tree root wood".split()
documents = [SEA, WOOD, SEA + WOOD, SEA[:5], WOOD[2:]] * 20

lda = LDA(n_components=2, n_workers=1, random_state=1).fit(documents)
for topic in lda.topics(4):
    print(f"{topic.share:.0%}", *topic.words)

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) / "model"
lda.save(str(folder))
model = esvi_shm.load(folder)
print("saved in", folder)
print("ELBO", round(model.elbo, 3), "after", model.history[-1].passes, "passes")
print("first document:", model.doc_topic[0].round(2))
