"""`python -m rewardlab` is the command line."""

import sys

from rewardlab.cli import main

sys.exit(main())
