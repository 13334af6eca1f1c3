"""The tests: they run in as many processes as there are cores, so each process, and what it starts, has one thread.

Libraries read this when they are loaded. With a thread per core BLAS spins while it waits for a core that others have.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
