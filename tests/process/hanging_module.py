# SPDX-License-Identifier: Apache-2.0
"""A module whose import never ends in a spare, for the tests."""

import os
import signal

if "RANK" not in os.environ:
    signal.pause()
