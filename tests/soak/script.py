"""The script of a soak's script jobs: it works for a moment, and notes that."""

from __future__ import annotations

import json
import random
import signal
import sys
import time

from tests.soak.journal import noted

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with noted(json.loads(sys.argv[-1])):
        time.sleep(random.uniform(0.1, 0.5))
