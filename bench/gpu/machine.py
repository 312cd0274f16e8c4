# SPDX-License-Identifier: Apache-2.0
"""Reads clocks and power of the GPU while other programs compute; changes no setting."""

import contextlib
import shutil
import subprocess

# Dense bf16 TFLOP/s of the datasheets, by a part of the name.
DATASHEET = {"H200": 989, "H100 NVL": 835, "H100 PCIe": 756, "H100": 989, "A100": 312, "L40S": 362, "B200": 2250}


def datasheet(name):
    return next((rate for part, rate in DATASHEET.items() if part in name), None)


def clocks():
    if not shutil.which("nvidia-smi"):
        return "no nvidia-smi"
    asked = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.draw,power.limit,temperature.gpu"
    done = subprocess.run(["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader", "-i", "0"], capture_output=True,
                          text=True, check=False)
    return done.stdout.strip() or done.stderr.strip()


class UnderLoad:
    """Samples clocks and power while other programs compute."""

    def __init__(self):
        self.samples = []

    @contextlib.contextmanager
    def watched(self):
        if not shutil.which("nvidia-smi"):
            yield
            return
        with subprocess.Popen(["nvidia-smi", "--query-gpu=clocks.sm,power.draw,utilization.gpu",
                               "--format=csv,noheader,nounits", "-i", "0", "--loop-ms=200"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as asked:
            try:
                yield
            finally:
                asked.terminate()
                for line in asked.stdout:
                    with contextlib.suppress(ValueError):  # "[N/A]"
                        clock, power, busy = (float(part) for part in line.split(","))
                        self.samples += [(clock, power)] if busy >= 90 else []  # ignore the time in which programs start

    def __str__(self):
        if not self.samples:
            return "not read"
        clock, power = (sorted(values) for values in zip(*self.samples))
        middle = len(clock) // 2
        return (f"SM {clock[middle]:.0f} MHz ({clock[0]:.0f} to {clock[-1]:.0f}), {power[middle]:.0f} W"
                f" ({len(clock)} samples)")
