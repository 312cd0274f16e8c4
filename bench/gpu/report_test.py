#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the reports of bench/gpu/run without a GPU and without PyTorch: goals, ceilings, and llm.c, for which a program runs
that prints the lines of train_gpt2cu."""

import pathlib
import struct
import tempfile
import unittest

import ceilings
import goals
import llmc

STAND_IN = """#!/usr/bin/env python3
import sys
flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
steps = int(flags["-x"])
print("| precision             | BF16                                               |")
print("val loss 10.9")
for step in range(1, steps + 1):
    print(f"step {step:4d}/{steps} | loss {11 - step / 100:7.6f} (+nanz)| norm 2.0000 (-0.31z)| lr 3.00e-04 | "
          f"{100 + step:.2f} ms | 45.2% bf16 MFU | 467000 tok/s")
print("total average iteration time: 105.0 ms")
"""


class Goals(unittest.TestCase):
    RATES = {"ours exact": 131.0, "ours fast": 134.0, "torch compile": 100.0, "torch max-autotune": 120.0}

    def test_each_is_met_or_missed(self):
        compiled, best, mfu, exact = goals.lines(self.RATES, 0.581, True)
        self.assertTrue(compiled.endswith("1.31 times: met"), compiled)
        self.assertTrue(best.endswith("(torch max-autotune): 1.09 times: MISSED"), best)
        self.assertTrue(mfu.endswith("58.1%: met"), mfu)
        self.assertTrue(exact.endswith("+2.2%: met"), exact)

    def test_what_was_not_measured_is_not_met(self):
        for line in goals.lines({"ours exact": 131.0}, None, True):
            self.assertTrue(line.endswith(": NOT MEASURED"), line)

    def test_the_best_of_weak_variants_is_not_the_best(self):
        best = goals.lines({"ours exact": 131.0, "torch eager": 90.0, "torch compile": 100.0}, None, True)[1]
        self.assertTrue(best.endswith(": NOT MEASURED"), best)

    def test_llmc_is_part_of_no_goal(self):
        self.assertEqual(goals.lines(self.RATES | {"llm.c -ge 0": 1000.0}, 0.6, True), goals.lines(self.RATES, 0.6, True))

    def test_by_emulation_nothing_is_met(self):
        for line in goals.lines(self.RATES, 0.6, False):
            self.assertTrue(line.endswith("means nothing by emulation"), line)


class Ceilings(unittest.TestCase):
    PARTS = [{"products_tflops": 800.0, "sustained_tflops": 600.0, "copy_gbps": 4000.0},
             {"part": "attention", "by": "cuDNN", "calls": 12, "milliseconds": 0.5, "bytes": 4e8, "flops": 8e10, "counted": True},
             {"part": "attention", "by": "our kernels", "calls": 12, "milliseconds": 0.9, "bytes": 4e8, "flops": 8e10,
              "counted": False},
             {"part": "exact sums", "by": "", "calls": 1, "milliseconds": 0.3, "bytes": 8e8, "flops": 0, "counted": True},
             {"part": "norm", "by": "", "calls": 1, "milliseconds": 0.2, "bytes": 4e8, "flops": 0, "counted": True}]
    PRODUCTS = [{"product": "a", "calls": 12.0, "milliseconds": 1.0, "flops": 4e11},
                {"product": "never made", "calls": 0.0, "milliseconds": 0.0, "flops": 0.0}]

    def ratio(self, attention):
        return list(ceilings.lines(self.PARTS, self.PRODUCTS, attention, 22.35))[-1]

    def test_the_quickest_attention_is_the_ceiling(self):
        attention = [{"backend": "cudnn", "forward_ms": 0.2, "backward_ms": 0.5},
                     {"backend": "flash", "forward_ms": 0.3, "backward_ms": 0.4}]
        self.assertEqual(ceilings.sdpa(attention), {"attention": (0.2, "cudnn"), "attention, backward": (0.4, "flash")})
        # 12 products, 12 attentions and the norm; what exact numerics add is no ceiling.
        self.assertIn(f"{22.35 / (12 + 12 * 0.2 + 0.1):.2f} times the sum of ceilings", self.ratio(attention))
        # Who does it, and who might: the other one is shown, and is in no sum.
        lines = list(ceilings.lines(self.PARTS, self.PRODUCTS, attention, 22.35))
        self.assertIn("  ours by our kernels, attention: 0.900 ms, 4.50 times cudnn's (not chosen)", lines)
        self.assertEqual([line.split()[:2] for line in lines if "attention, cuDNN" in line], [["attention,", "cuDNN"]])
        self.assertIn(f"{12 * (1 + 0.5) + 0.3 + 0.2:.3f}", next(line for line in lines if line.startswith("  sum")))

    def test_without_pytorch_the_floor_stands_for_attention(self):
        self.assertIn(f"{22.35 / (12 + 12 * 0.1 + 0.1):.2f} times", self.ratio(None))
        self.assertIn("times the sum of ceilings", self.ratio([{"backend": "cudnn", "why": "not there"}]))


class LlmC(unittest.TestCase):
    SHAPE = {"layers": 12, "heads": 12, "width": 768, "context": 8, "vocabulary": 50257}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def program(self, text):
        path = self.folder / "train_gpt2cu"
        path.write_text(text)
        path.chmod(0o755)

    def speed(self, warm_up=2, steps=3):
        return llmc.speed(self.folder, self.folder, self.SHAPE, 4, warm_up, steps, 2)

    def test_only_steps_after_the_warm_up_count(self):
        self.program(STAND_IN)
        (median, loss), why = self.speed()
        self.assertAlmostEqual(median, 0.104)
        self.assertAlmostEqual(loss, 10.95)
        self.assertEqual(why, "")

    def test_failures_are_told(self):
        self.assertIn("train_gpt2cu is not there", self.speed()[1])
        self.program("#!/bin/sh\necho 'CUDA Error: no device' >&2\nexit 1\n")
        self.assertEqual(self.speed(), (None, "exit code 1: CUDA Error: no device"))
        self.program("#!/bin/sh\necho 'step    1/5 | a format of another day'\n")
        self.assertEqual(self.speed(), (None, "0 steps could be read of its output, not 5"))

    def test_the_arguments(self):
        said = " ".join(llmc.command("train_gpt2cu", self.folder, self.SHAPE | {"context": 1024}, 64, 70, 0))
        for part in ("-e d12", "-b 64 -t 1024 -d 65536", "-x 70", "-c 0.1", "-r 0 -z 0 -ge 0", "-s 0"):
            self.assertIn(part, said)

    def test_shards(self):
        llmc.write_shards(self.folder, 50257, 1000)
        data = (self.folder / "train.bin").read_bytes()
        self.assertEqual(len(data), 1024 + 2000)
        self.assertEqual(struct.unpack("<3i", data[:12]), (20240520, 1, 1000))
        tokens = struct.unpack("<1000H", data[1024:])
        self.assertTrue(max(tokens) < 50257 and len(set(tokens)) > 900)
        self.assertNotEqual(data, (self.folder / "val.bin").read_bytes())
        with self.assertRaises(ValueError):
            llmc.write_shards(self.folder, 70000, 10)


if __name__ == "__main__":
    unittest.main()
