# SPDX-License-Identifier: Apache-2.0
"""The text that both Helms render from the chart, and whether the API server accepts it."""

import json
import re
import unittest

from cluster import Cluster
from helm import CHART, KUBERNETES, NAMESPACE, ROOT, Helm, HelmError, folder, objects

MONITORING = ["servicemonitors", "podmonitors", "prometheusrules"]

# Each set alone, then all compatible ones together.
SETS = {
    "defaults": [],
    "one replica": ["replicas=1"],
    "some namespaces": ["watchNamespaces={team-a,team-b}"],
    "its own namespace and another": [f"watchNamespaces={{{NAMESPACE},team-a}}"],
    "without CRD": ["crds.enabled=false"],
    "CRD that goes with it": ["crds.keep=false"],
    "digests": ["image.digest=sha256:" + "a" * 64, "workerImage.digest=sha256:" + "b" * 64],
    "a site's registry": ["image.repository=registry.local/rm/operator", "image.tag=1.2", "imagePullSecrets[0].name=pull",
                          "image.pullPolicy=Always", "priorityClassName=system-cluster-critical"],
    "placement": ["nodeSelector.pool=system", "tolerations[0].operator=Exists",
                  "topologySpread.whenUnsatisfiable=DoNotSchedule",
                  "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
                  ".matchExpressions[0].key=x", "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
                  ".nodeSelectorTerms[0].matchExpressions[0].operator=Exists"],
    "no extras": ["podDisruptionBudget.enabled=false", "networkPolicy.enabled=false", "topologySpread.enabled=false",
                  "metrics.enabled=false", "rbac.aggregate=false"],
    "others' accounts": ["serviceAccount.create=false", "serviceAccount.name=theirs", "rbac.create=false"],
    "network": ["networkPolicy.rendezvousFrom[0].ipBlock.cidr=10.0.0.0/8",
                "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.name=monitoring"],
    "monitoring": ["metrics.serviceMonitor.enabled=true", "metrics.podMonitor.enabled=true",
                   "metrics.prometheusRule.enabled=true", "metrics.dashboard.enabled=true",
                   "metrics.serviceMonitor.labels.release=prom", "metrics.readers[0].name=prom",
                   "metrics.readers[0].namespace=monitoring", "metrics.tokenSecret.name=token", "metrics.jobs=true"],
    "environment": ["extraEnv[0].name=HTTPS_PROXY", "extraEnv[0].value=http://proxy:3128", "log.level=debug",
                    "log.format=json", "podLabels.team=ml", "podAnnotations.note=x"],
    "gangs": ["gang.default=volcano", "gang.volcanoScheduler=gpu-volcano", "gang.volcanoNamespace=scheduling",
              "gang.coschedulingScheduler=default-scheduler", "gang.autoscaler=true", "gang.namespaceWeights.team-a=3",
              "gang.namespaceWeights.team-b=1"],
    "a Kueue that does not manage all namespaces": [
        "kueue.manageJobsWithoutQueueName=true", "kueue.managedJobsNamespaceSelector.matchLabels.team=ml",
        "kueue.managedJobsNamespaceSelector.matchExpressions[0].key=kubernetes.io/metadata.name",
        "kueue.managedJobsNamespaceSelector.matchExpressions[0].operator=NotIn",
        "kueue.managedJobsNamespaceSelector.matchExpressions[0].values[0]=kube-system",
        "kueue.managedJobsNamespaceSelector.matchExpressions[0].values[1]=kueue-system",
        "kueue.managedJobsNamespaceSelector.matchExpressions[1].key=off",
        "kueue.managedJobsNamespaceSelector.matchExpressions[1].operator=DoesNotExist"],
    "another name": ["fullnameOverride=training", "leaderElection.leaseDurationSeconds=30"],
}
REFUSED = {
    "no such value": (["replicsa=3"], "replicsa"),
    "no such value below": (["image.regsitry=x"], "regsitry"),
    "a wrong type": (["replicas=many"], "replicas"),
    "no digest": (["image.digest=latest"], "digest"),
    "a lease shorter than its deadline": (["leaderElection.leaseDurationSeconds=5"], "leaseDurationSeconds must be above"),
}


def flags(values):
    return [word for value in values for word in ("--set", value)]


def schema_properties(schema, path=""):
    for name, part in schema.get("properties", {}).items():
        yield f"{path}{name}", part
        yield from schema_properties(part, f"{path}{name}.")
        yield from schema_properties(part.get("items", {}), f"{path}{name}[].")


def rules(found):
    """Returns the single rights as a set, so that a comparison ignores their grouping."""
    return {(group, resource, name, verb) for rule in found for group in rule.get("apiGroups", [""])
            for resource in rule.get("resources", []) for name in rule.get("resourceNames", [""]) for verb in rule["verbs"]}


class Render(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = c = cls.enterClassContext(Cluster(nodes=0))
        cls.helms = [Helm("helm3", c), Helm("helm4", c)]
        spaces = [NAMESPACE, "team-a", "team-b", "monitoring"]
        c.apply_text("\n---\n".join(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
                                    for name in spaces))
        for space in (NAMESPACE, "team-a"):  # a dry run creates no ServiceAccount, and pods without theirs are rejected
            for name in ("ringmaster-test", "training-test"):
                c.kubectl("create", "serviceaccount", name, "-n", space)
        c.kubectl("apply", "--server-side", "-f", ROOT / "crds/ringmaster.dev_trainingjobs.yaml")
        c.kubectl("apply", "--server-side", "-f", folder() / "monitoring")
        c.wait(lambda: all(name in c.kubectl("api-resources", "-o", "name")
                           for name in ["trainingjobs.ringmaster.dev", *(f"{p}.monitoring.coreos.com" for p in MONITORING)]),
               "the CRDs are served")

    def test_lint(self):
        for helm in self.helms:
            for name, values in SETS.items():
                with self.subTest(helm=helm.version, values=name):
                    said = helm("lint", "--strict", CHART, "--kube-version", KUBERNETES, *flags(values))
                    self.assertIn("0 chart(s) failed", said)

    def test_the_server_accepts_the_rendered_objects(self):
        for name, values in SETS.items():
            texts = [helm.template(*flags(values)) for helm in self.helms]
            with self.subTest(values=name):
                self.cluster.apply_text(texts[0], "--dry-run=server", "--force-conflicts")
                both = [sorted(document.strip() for document in text.split("\n---\n")) for text in texts]
                self.assertEqual(both[0], both[1], "Helm 3 and Helm 4 do not agree")

    def test_invalid_values_are_rejected(self):
        for helm in self.helms:
            for name, (values, said) in REFUSED.items():
                with self.subTest(helm=helm.version, values=name), self.assertRaisesRegex(HelmError, said):
                    helm.template(*flags(values))

    def test_every_value_has_its_description(self):
        schema = json.loads((CHART / "values.schema.json").read_text())
        found = dict(schema_properties(schema))
        self.assertGreater(len(found), 60)
        for path, part in found.items():
            self.assertTrue(part.get("description", "").endswith("."), path)
            if "properties" in part:
                self.assertIs(part.get("additionalProperties"), False, path)

    def test_the_rights_equal_those_of_the_tests(self):
        wanted = {o["kind"]: rules(o["rules"]) for o in objects(self.cluster, (ROOT / "config/rbac.yaml").read_text())
                  if "rules" in o}
        roles = [o for o in objects(self.cluster, self.helms[0].template()) if "rules" in o
                 and o["metadata"]["name"] == "ringmaster-operator"]
        self.assertEqual({o["kind"]: rules(o["rules"]) for o in roles}, wanted)

        spread = [o for o in objects(self.cluster, self.helms[0].template(*flags(SETS["some namespaces"])))
                  if "rules" in o and o["metadata"]["name"].startswith("ringmaster-operator")]
        cluster_wide = rules(next(o for o in spread if o["kind"] == "ClusterRole")["rules"])
        self.assertEqual({resource for _, resource, _, _ in cluster_wide},
                         {"nodes", "namespaces", "priorityclasses", "leases", "queues", "resourceflavors", "workloadpriorityclasses",
                          "resourceslices", "deviceclasses", "tokenreviews", "subjectaccessreviews"})
        for namespace in ("team-a", "team-b"):
            role = next(o for o in spread if o["metadata"].get("namespace") == namespace)
            self.assertEqual(rules(role["rules"]) | cluster_wide, wanted["ClusterRole"], namespace)
            self.assertFalse(rules(role["rules"]) & cluster_wide)

    def test_the_operator_may_read_the_lease_that_it_is_given(self):
        for values, name in ([], "volcano"), (SETS["gangs"], "gpu-volcano"):
            roles = [o for o in objects(self.cluster, self.helms[0].template(*flags(values))) if o["kind"] == "ClusterRole"
                     and o["metadata"]["name"] == "ringmaster-operator"]
            self.assertEqual({rule for rule in rules(roles[0]["rules"]) if rule[1] == "leases"},
                             {("coordination.k8s.io", "leases", name, "get")})

    def test_values_of_namespaces_become_flags(self):
        for values, flag in (
                ("gangs", "--namespace-weights=team-a=3,team-b=1"),
                ("a Kueue that does not manage all namespaces",
                 "--kueue-managed-namespaces=team=ml,kubernetes.io/metadata.name notin (kube-system,kueue-system),!off")):
            deployment = next(o for o in objects(self.cluster, self.helms[0].template(*flags(SETS[values])))
                              if o["kind"] == "Deployment")
            self.assertIn(flag, deployment["spec"]["template"]["spec"]["containers"][0]["args"])

    def test_images_follow_the_values(self):
        deployment = next(o for o in objects(self.cluster, self.helms[0].template(*flags(SETS["digests"])))
                          if o["kind"] == "Deployment")
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual(container["image"], "ringmaster-operator@sha256:" + "a" * 64)
        self.assertIn({"name": "RINGMASTER_WORKER_IMAGE", "value": "ringmaster-worker@sha256:" + "b" * 64}, container["env"])

    def test_every_image_is_configurable(self):
        """Every image comes from a value, so an air-gapped site can name its own."""
        text = self.helms[0].template("--set", "image.repository=site/a", "--set", "workerImage.repository=site/b")
        images = [line.split("image:")[1].strip() for line in text.splitlines() if line.strip().startswith("image:")]
        version = re.search(r'\nappVersion: "(.*)"\n', (CHART / "Chart.yaml").read_text())[1]
        self.assertEqual(sorted(set(images)), [f"site/a:{version}", f"site/b:{version}"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
