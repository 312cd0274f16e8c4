# SPDX-License-Identifier: Apache-2.0
"""The chart's templates quote names that users choose: a namespace 2024 or a release 1e3 would become a number. The documents
say what the chart exposes.

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

    def test_the_operator_reaches_api_servers_of_common_distributions(self):
        """kubeadm and k3s listen on 6443, minikube on 8443, MicroK8s on 16443; a Service without them behind it on 443."""
        values = (ROOT / "helm/ringmaster/values.yaml").read_text()
        ports = re.search(r"apiServerPorts: \[(.*)\]", values)[1].split(", ")
        self.assertLessEqual({"443", "6443", "8443", "16443"}, set(ports))
        policy = (TEMPLATES / "networkpolicy.yaml").read_text()
        self.assertIn("range .Values.networkPolicy.apiServerPorts", policy[policy.index("egress:"):])

    def test_what_metrics_reveal_is_documented_by_label(self):
        code = re.sub(r"for \(const char\* \w+ : \{[^}]*\}\)", "", (ROOT / "operator/serve/metrics.cc").read_text())
        labels = set(re.findall(r'\{"(\w+)", ', code))
        self.assertGreater(len(labels), 10)
        page = (ROOT / "docs/operate/security.md").read_text()
        table = page[page.index("| label | reveals |"):].split("\n\n")[0]
        explained = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
        self.assertEqual(labels, explained)


if __name__ == "__main__":
    unittest.main()
