"""A fit in a process of its own, to be ended from outside: `scenario.py [short] [alone] [in=DIR]`.

Once work is under way it says on standard output, in one line of JSON, the name of its run (none
with in=DIR, where its arrays lie in files of that folder) and the process ids of its workers; then
it goes on for as long as it is let. There is no main guard here on purpose. Standard error stays
open until the workers and the resource tracker are gone.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np
import psutil

from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.runtime.engine import fit
from esvi_shm.runtime.record import Observer
from esvi_shm.shared import preflight


class Telling(Observer):
    told = False

    def progress(self, pairs, total_pairs, fit_seconds):
        if pairs > 0 and not self.told:
            self.told = True
            run = re.search(r"/dev/shm/(esvi-\d+-\w+)-", Path("/proc/self/maps").read_text())
            children = psutil.Process().children()
            workers = [c.pid for c in children if "esvi_shm.runtime.worker" in c.cmdline()[-1]]
            print(json.dumps({"run": run and run[1], "workers": workers}), flush=True)


n_workers = 1 if "alone" in sys.argv else 2
n_passes = 3 if "short" in sys.argv else 10**9
scratch = next((a.removeprefix("in=") for a in sys.argv if a.startswith("in=")), None)
if scratch is not None:
    preflight.free_shared_memory = lambda: 0
counts = np.random.default_rng(0).poisson(0.7, (40, 30))
config = FitConfig(
    n_topics=3, n_workers=n_workers, n_blocks=4, n_passes=n_passes, evaluate_every=0,
    scratch=scratch,
)  # fmt: skip
result = fit(Corpus.from_sparse(counts), config, Telling())
print(json.dumps({"stopped": result.stopped, "passes": result.passes}))
