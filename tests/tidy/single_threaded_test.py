#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that programs start no thread: single_threaded_test.py PROGRAM...

scripts/test does not run these programs with the thread sanitizer. Their own code and the libraries that are linked into them
must therefore not refer to a function that starts a thread. The check does not look into shared libraries that start threads themselves.
"""
import pathlib
import subprocess
import sys

STARTERS = ("pthread_create", "thrd_create", "_ZNSt6thread15_M_start_thread")


def starters_in(program: str) -> list[str]:
    symbols = subprocess.run(["nm", "--dynamic", "--undefined-only", program], check=True, capture_output=True, text=True).stdout
    return [name for name in STARTERS if any(word.startswith(name) for word in symbols.split())]


def main() -> int:
    if len(sys.argv) < 2:
        print("no program named", file=sys.stderr)
        return 2
    failed = False
    for program in sys.argv[1:]:
        for name in starters_in(program):
            failed = True
            print(f"{pathlib.Path(program).name}: refers to {name}: remove SINGLE_THREADED in its CMakeLists.txt")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
