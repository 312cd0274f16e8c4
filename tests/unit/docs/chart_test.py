# SPDX-License-Identifier: Apache-2.0
"""The chart's templates quote names that users choose: a namespace 2024 or a release 1e3 would become a number.

e2e/chart renders the chart; this test needs no Helm.
"""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
TEMPLATES = ROOT / "helm/ringmaster/templates"
# Keys whose value the user chooses alone. Other names begin or end with a word of the chart.
CHOSEN = re.compile(r"\b(namespace|app\.kubernetes\.io/instance|serviceAccountName|priorityClassName): \{\{-? ?(.*?)\}\}")


class Chart(unittest.TestCase):
    def test_chosen_names_are_quoted(self):
        seen = 0
        for path in [*TEMPLATES.rglob("*.yaml"), *TEMPLATES.rglob("*.tpl")]:
            for key, expression in CHOSEN.findall(path.read_text()):
                seen += 1
                self.assertRegex(expression.strip(), r"\| quote$", f"{path.name}: {key}")
        self.assertGreater(seen, 20)

    def test_documented_upgrades_take_new_defaults(self):
        for path in (ROOT / "docs").rglob("*.md"):
            for line in path.read_text().splitlines():
                if line.startswith("$ helm upgrade"):
                    self.assertNotIn(" --reuse-values", line, path.name)


if __name__ == "__main__":
    unittest.main()
