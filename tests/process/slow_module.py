# SPDX-License-Identifier: Apache-2.0
"""A module like a framework, for the tests: importing it takes a while. IMPORTED_BY is `rank` or `spare`."""

import os
import time

IMPORTED_BY = "rank" if "RANK" in os.environ else "spare"
END = time.monotonic() + 2
while time.monotonic() < END:
    pass
