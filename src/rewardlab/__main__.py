"""`python -m rewardlab` is the command line."""

import sys

from rewardlab.cli import main

if not sys.flags.safe_path:
    sys.path.append(sys.path.pop(0))  # Python puts the current folder in front; nothing in it may hide a module

sys.exit(main())
