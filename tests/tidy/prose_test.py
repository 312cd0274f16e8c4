# SPDX-License-Identifier: Apache-2.0
"""scripts/check-prose: every rule finds its word and leaves the natural uses alone; the tree has no findings."""
import importlib.machinery
import importlib.util
import os
import subprocess
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, "scripts", "check-prose")


def load():
    loader = importlib.machinery.SourceFileLoader("check_prose", SCRIPT)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_prose", loader))
    loader.exec_module(module)
    return module


prose = load()

# At least one for each rule, in the order of the rules.
BAD = [
    "// The agent is told to stop.",
    "The file lies beside the target.",
    "Start anew.",
    "Nobody reads it.",
    "somebody changed it",
    "what the user wishes",
    "a barren node",
    "a sick node",
    "The name stands at the head of the line.",
    "no toolkit is to be had",
    "it is seen to be right",
    "a thread of its own while others wait",
    "a task of ours",
    "It is freed in the end.",
    "the flag leaves the plugin away",
    "It does all but commit.",
    "kill a random worker about so often",
    "whatever there is",
    "an image name that is none",
    "two leaders in office at once",
    "the last words of a container",
    "now and then one of them is killed",
    "as one likes",
    "the worker is thrown out",
    "training goes on",
    "the tensor lies in device memory",
]
GOOD = [
    "std::vector<int> told_;",
    "besides the two commands",
    "a stand-in for the device",
    "RMA stands for remote memory access",
    "its own X",
    "because of its own error",
    "at the end of the step",
    "wishlist",
    "int nobodys_business;",
]


class Prose(unittest.TestCase):
    def test_every_rule_finds_its_word(self):
        self.assertEqual(len(BAD), len(prose.RULES))
        for text, (_, instead) in zip(BAD, prose.RULES):
            self.assertIn(instead, [found[2] for found in prose.check("a.cc", text)], text)

    def test_natural_uses_pass(self):
        for text in GOOD:
            self.assertEqual(prose.check("a.cc", text), [], text)

    def test_a_phrase_may_cross_a_line_break_in_a_comment(self):
        self.assertEqual(prose.check("a.cc", "int x;\n// a member of\n// its own.\n")[0][:2], (2, "of its own"))

    def test_markdown_may_quote_a_word(self):
        self.assertEqual(prose.check("a.md", "Avoid `told` and `of its own`."), [])
        self.assertEqual(len(prose.check("a.md", "The agent is told.")), 1)

    def test_the_tree_has_no_findings(self):
        run = subprocess.run([SCRIPT], capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stdout), (0, ""), "\n" + run.stdout + run.stderr)


if __name__ == "__main__":
    unittest.main()
