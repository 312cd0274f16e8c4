# SPDX-License-Identifier: Apache-2.0
"""`kubectl ringmaster ui` and `status --watch` with a real API server, and a real browser where Chromium is installed."""

import datetime
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

from fake_kubelet import FakeKubelet
from plugin_rig import BIN, PluginCase, job

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/process"))
import browser  # noqa: E402
import harness  # noqa: E402

MARKUP = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
HOSTILE = MARKUP + "\x1b]0;taken\x07\x1b[31m\u202e"
HUGE = {"template": {"spec": {"containers": [{"name": "worker", "image": "registry.local/w:1", "resources": {
    "limits": {"nvidia.com/gpu": 9}}}]}}}
NOW = datetime.datetime.now(datetime.timezone.utc)
needs_browser = unittest.skipUnless(browser.is_installed(), "needs the packages chromium and chromium-driver (scripts/setup browser)")


def at(seconds):
    return (NOW + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class UiCase(PluginCase):
    def serve(self, *arguments, kubeconfig=None):
        """Starts `kubectl ringmaster ui` and returns the address that it prints."""
        words, environment = self.command(["ui", *arguments], kubeconfig)
        process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)

        def end():
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0)
        self.addCleanup(end)
        line = process.stdout.readline()
        self.assertRegex(line, r"^page: http://127\.0\.0\.1:\d+/\S* \(Ctrl-C ends it\)$")
        return re.search(r"http://\S+", line)[0]

    def messages(self, url, until):
        """Reads messages of the page, as (name, data), until one for which `until` is true, and returns that one."""
        parts = urllib.parse.urlsplit(url)
        stream = urllib.request.urlopen(f"http://{parts.netloc}/api/stream?{parts.query}", timeout=60)
        self.addCleanup(stream.close)
        name = None
        for line in stream:
            text = line.decode().rstrip("\n")
            if text.startswith("event: "):
                name = text[7:]
            elif text.startswith("data: ") and until(name, json.loads(text[6:])):
                return json.loads(text[6:])
        raise AssertionError("the stream ended")

    def open(self, url):
        page = browser.Browser()
        self.addCleanup(page.__exit__)
        page.open(url)
        return page

    def see(self, page, selector, condition):
        """Waits for a condition on `node`, which the page draws while it is in view."""
        page.wait(f"((node) => {{ if (!node.checkVisibility()) return false; node.scrollIntoView({{block: 'center'}}); "
                  f"return {condition}; }})(document.querySelector('{selector}'))")

    def on_terminal(self, *arguments):
        """Runs `kubectl ringmaster ...` on a terminal. Returns the process, and a function that reads until it has printed words
        and returns everything so far."""
        words, environment = self.command(arguments)
        master, slave = pty.openpty()
        process = subprocess.Popen(words, env={**environment, "TERM": "xterm"}, stdin=slave, stdout=slave)
        os.close(slave)
        self.addCleanup(os.close, master)
        self.addCleanup(lambda: process.poll() is None and (process.kill(), process.wait()))
        seen = b""

        def read_until(word):
            nonlocal seen
            deadline = time.monotonic() + 60
            while word not in seen and time.monotonic() < deadline:
                seen += os.read(master, 65536)
            self.assertIn(word, seen)
            return seen
        return process, read_until

    def unmanaged(self, name):
        """A job that the operator leaves alone, so that this test can write its status."""
        self.rig.apply(job(name, replicas=2, native=True, spec={"managedBy": "example.com/test"}))
        return name

    def set_status(self, name, **status):
        path = f"/apis/ringmaster.dev/v1alpha1/namespaces/default/trainingjobs/{name}/status"
        self.cluster.api.patch(path, {"status": status})

    def waits(self, message):
        return {"phase": "Pending", "conditions": [{"type": "Scheduled", "status": "False", "reason": "Unschedulable",
                                                    "message": message}]}

    def worker(self, name, rank):
        """A pod of the unmanaged job, on a node of the fake kubelet."""
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{name}-1-{rank}", "namespace": "default", "labels": {
            "ringmaster.dev/job": name, "ringmaster.dev/attempt": "1", "ringmaster.dev/rank": str(rank)}},
            "spec": {"nodeName": f"node-{rank}", "containers": [{"name": "worker", "image": "registry.local/w:1"}]}}
        self.cluster.apply_text(json.dumps(pod))
        self.addCleanup(self.cluster.kubectl, "delete", "pod", pod["metadata"]["name"], "--wait=false")
        return pod["metadata"]["name"]

    def event(self, name, reason, note):
        uid = self.rig.job(name)["metadata"]["uid"]
        self.cluster.api.request("POST", "/apis/events.k8s.io/v1/namespaces/default/events", {
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"generateName": name, "namespace": "default"},
            "eventTime": at(0), "type": "Warning", "reason": reason, "note": note, "action": reason,
            "reportingController": "ringmaster.dev/operator", "reportingInstance": "test",
            "regarding": {"apiVersion": "ringmaster.dev/v1alpha1", "kind": "TrainingJob", "name": name,
                          "namespace": "default", "uid": uid}})


class Ui(UiCase):
    def serve_two_jobs(self):
        """Serves the list of a job that trains and a job that waits."""
        self.running("trains", replicas=2)
        self.rig.apply(job("big", replicas=2, workers=HUGE, spec={"scheduling": {"gang": "gate"}}))
        self.rig.wait_condition("big", "Scheduled", "False", "WaitingForCapacity")
        return self.serve()

    def test_the_list_says_why_jobs_wait(self):
        url = self.serve_two_jobs()
        rows = {}

        def all_there(name, message):
            self.assertEqual(name, "jobs")
            rows.update({row["key"]: row for row in message["items"]})
            return message["synced"] and "default/big" in rows and rows.get("default/trains", {}).get("phase") == "Running"
        self.messages(url, all_there)
        self.assertIn("nvidia.com/gpu", rows["default/big"]["why"])
        self.assertEqual(rows["default/big"]["state"], "waits")
        self.assertEqual(rows["default/trains"]["workers"], "2/2")

    @needs_browser
    def test_the_list_in_a_browser(self):
        page = self.open(self.serve_two_jobs())
        row = "[...document.querySelectorAll('#jobs-list tr')].find((one) => one.querySelector('a').textContent === '%s')"
        page.wait(f"({row % 'big'}).textContent.includes('nvidia.com/gpu') && ({row % 'trains'}).textContent.includes('Running')")
        self.assertEqual(page.run("return document.querySelector('#jobs-count').textContent"), "2 jobs: 1 waiting, 1 running")
        self.assertEqual(page.run("return document.querySelector('#jobs-list a').textContent"), "big", "what waits is first")
        # Live: a new job, a change and a deletion arrive without a reload.
        page.run("window.kept = true")
        self.rig.apply(job("later", replicas=1, spec={"suspend": True}))
        page.wait(f"({row % 'later'}).textContent.includes('Suspended')")
        self.cluster.kubectl("delete", "tj", "big", "--wait=false")
        page.wait(f"!({row % 'big'})")
        # With the keyboard: the first link, then Enter.
        page.run("document.querySelector('#jobs-filter').focus()")
        page.keys("\ue004\ue007")  # Tab, Enter
        page.wait("document.querySelector('#phase').textContent === 'Suspended' && document.querySelector('#name').textContent === 'default/later'")
        self.assertIsNone(page.run("return window.kept"), "another page")
        page.run("document.querySelector('#back').focus()")
        page.keys("\ue007")
        page.wait(f"({row % 'trains'}).textContent.includes('Running')")
        page.check_looks(self)
        self.assertEqual(page.problems(), [])

    @needs_browser
    def test_a_job_with_its_gang(self):
        name = self.unmanaged("gang")
        with FakeKubelet(self.cluster) as kubelet:
            for node in range(4):
                kubelet.serve_node(f"node-{node}")
            pods = [self.worker(name, rank) for rank in range(2)]
            for rank, pod in enumerate(pods):
                kubelet.logs[pod] = [f"{at(-60)} t generation=1 rank={rank} world=2 transport=rc", f"{at(-59)} {HOSTILE}"]
            self.set_status(name, phase="Running", ready="2/2", attempt=1,
                            progress={"step": 10, "totalSteps": 100, "loss": "2.5", "samplesPerSecond": "800"})
            page = self.open(self.serve(name))
            page.wait("document.querySelector('#phase').textContent === 'Running'")
            page.wait("document.querySelectorAll('#gang .span').length === 2")
            page.wait("document.querySelectorAll('#workers-list tr').length === 2")
            # The log arrives although it is out of view and its first lines were read after the first request for it.
            page.wait("document.querySelector('#log').textContent")
            # Each kill shows within a second. They come when the one before has just been shown, so that a page which asks every
            # two seconds shows them two seconds later.
            page.watch("[data-mark=failed]")
            killed = []
            for kill in range(1, 4):
                kubelet.logs[pods[1]].append(f"{at(10 * kill - 50)} a trainer member=1 pid=2 lost evidence=mutex the trainer died")
                killed.append(1000 * time.time())
                page.wait(f"window.watched.shown.length === {kill}")
                kubelet.logs[pods[0]].append(f"{at(10 * kill - 49.99)} t generation={2 * kill} rank=0 world=1 transport=rc")
                page.wait(f"document.querySelector('#gang-note').textContent.endsWith('{kill} recoveries, median 10 ms'.replace('1 recoveries', '1 recovery'))")
                for rank, pod in enumerate(pods):
                    kubelet.logs[pod].append(f"{at(10 * kill - 45)} t generation={2 * kill + 1} rank={rank} world=2 transport=rc")
                page.wait(f"document.querySelectorAll('[data-mark=joined]').length === {kill}")
            page.check_delays(self, killed, len(killed))
            # Each report of the operator is a point of the curves.
            for step, loss in ((20, "2.25"), (30, "2.0")):
                self.set_status(name, progress={"step": step, "totalSteps": 100, "loss": loss, "samplesPerSecond": "810"})
                page.wait(f"document.querySelector('#steps').textContent.startsWith('step {step} of 100')")
            page.wait("document.querySelector('#loss').getAttribute('aria-label').includes('now 2.000, least 2.000, most 2.500')")
            # The log of the worker that failed ends at its failure, to the second in the status, unless a user wants its end.
            kubelet.logs[pods[1]].append(f"{at(-5)} runs again")
            self.set_status(name, lastFailure={"pod": pods[1], "reason": "Exit", "time": at(-20)[:19] + "Z", "message": "ended"})
            page.run("document.querySelector('#log').scrollIntoView()")
            page.wait("document.querySelector('#log').textContent.endsWith('the trainer died\\n')")
            page.run("document.querySelector('#log-newest').click()")
            page.wait("document.querySelector('#log').textContent.endsWith('runs again\\n')")
            # What is not recorded is not shown.
            self.assertFalse(page.run("return document.querySelector('#lr').checkVisibility()"))
            # Everything is text.
            self.event(name, "Exit", f"{pods[1]} {HOSTILE}")
            self.set_status(name, **self.waits(HOSTILE))
            page.wait("document.querySelector('#events').textContent.includes('Exit')")
            page.wait("document.querySelector('#message').textContent.includes('Unschedulable')")
            self.see(page, "#log", "node.textContent")
            for place in ("#message", "#events", "#log"):
                text = page.run(f"return document.querySelector('{place}').textContent")
                self.assertIn(MARKUP, text, place)
                self.assertNotRegex(text, "[\x1b\x07\u202e]", place)
            self.assertNotIn("taken", page.run("return document.title"))
            self.assertEqual(page.run("return document.querySelectorAll('main img, main script').length"), 0)
            self.assertEqual(page.problems(), [])
            page.check_looks(self)
            # A reload keeps the curve, and the deletion shows.
            page.run("location.reload()")
            page.wait("document.querySelector('#loss').getAttribute('aria-label').includes('most 2.500')")
            self.cluster.kubectl("delete", "tj", name, "--wait=false")
            page.wait("document.querySelector('#phase').textContent === 'Deleted'")

    def test_the_rights_of_the_user(self):
        name = self.running("mine", replicas=1)
        for user, rules in (("reader", [{"apiGroups": ["ringmaster.dev"], "resources": ["trainingjobs"],
                                         "verbs": ["get", "list", "watch"]}]), ("stranger", [])):
            self.cluster.apply_text(json.dumps({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": user}, "rules": rules}))
            self.cluster.apply_text(json.dumps({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": user},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
                "subjects": [{"kind": "User", "name": user}]}))
        _, complaint = self.plugin("ui", code=2, kubeconfig=self.cluster.kubeconfig_of("stranger"))
        self.assertIn("forbidden", complaint)
        _, complaint = self.plugin("ui", "-A", code=2, kubeconfig=self.cluster.kubeconfig_of("reader"))
        self.assertIn("forbidden", complaint)
        reader = self.cluster.kubeconfig_of("reader")
        url = self.serve(name, kubeconfig=reader)
        run = self.messages(url, lambda kind, data: kind == "run" and data["phase"] == "Running" and data["problem"])
        self.assertRegex(run["problem"], "pods in default: .*forbidden", "it shows what it may, and what is missing")
        # With Kubernetes' role for readers nothing is missing.
        self.cluster.apply_text(json.dumps({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "view"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "reader"}]}))
        self.messages(self.serve(name, kubeconfig=reader), lambda kind, data: kind == "events" and data["items"])

    def test_missing_jobs_and_foreign_requests(self):
        _, complaint = self.plugin("ui", "nothing", code=2)
        self.assertIn("there is no job nothing in namespace default", complaint)
        _, complaint = self.plugin("ui", "no/such/folder", code=2)
        self.assertIn("no/such/folder", complaint)
        url = self.serve("-A")
        run = self.messages(url + "?job=default/../x", lambda kind, _: kind == "run")
        self.assertEqual(run["phase"], "Unknown")
        run = self.messages(url + "?job=default/nothing", lambda kind, data: kind == "run" and not data["live"])
        self.assertEqual(run["message"], "there is no such job")
        request = urllib.request.Request(url + "api/stream", headers={"Host": "evil.example"})
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=60)
        self.assertEqual(refused.exception.code, 403)

    def test_status_watch(self):
        for name, code in (("succeeds", 0), ("breaks", 1)):
            self.running(name, replicas=2)
            words, environment = self.command(["status", name, "--watch"])
            watching = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
            self.addCleanup(watching.kill)
            self.assertEqual(watching.stdout.readline(), f"default/{name}  Running  step 0 of 0  2 of 2 workers\n")
            for rank in range(2):
                self.cluster.pod_exit("default", f"{name}-1-{rank}", 64 if code else 0, "no such path")
            rest, _ = watching.communicate(timeout=60)
            self.assertEqual(watching.returncode, code, rest)
            self.assertIn("Failed" if code else "Succeeded", rest.splitlines()[-1])
        _, complaint = self.plugin("status", "nothing", "-w", code=2)
        self.assertIn("there is no job nothing", complaint)

    def test_status_watch_on_a_terminal(self):
        name = self.unmanaged("screen")
        self.set_status(name, **self.waits("needs " + HOSTILE))
        watching, read_until = self.on_terminal("status", name, "-w")
        read_until(b"needs <img")
        self.set_status(name, phase="Running", conditions=[], progress={"step": 50, "totalSteps": 100, "loss": "2.5"})
        read_until(b"50")
        self.set_status(name, phase="Succeeded", conditions=[{"type": "Succeeded", "status": "True", "reason": "AllStepsDone"}])
        seen = read_until(b"Succeeded")
        self.assertEqual(watching.wait(60), 0)
        self.assertNotIn(b"\x1b]0;taken", seen)
        self.assertNotIn("\u202e".encode(), seen)
        screen, _ = self.plugin("status", name)
        self.assertNotIn("\x1b", screen)


def progress(seconds, rank, step, busy, loss=2.5):
    """A line of a trainer about its progress, as the API server returns it (worker/trainer/progress_log.h)."""
    return (f"{at(seconds)} I trainer pod=p member=m step={step} steps=1000 loss={loss} lr=0.0006 grad_norm=1.5 samples_per_second=812 "
            f"busy={busy} longest={2 * busy} micro_batches=2 generation=4294967297 rank={rank} world=3 transport=ucx:tcp")


class UiOfLogs(UiCase):
    """The logs of the workers have what happened before the page was opened."""

    def follow(self, name, logs):
        """Makes pods of the unmanaged job with these logs, by rank, and returns their kubelet and names."""
        kubelet = self.enterContext(FakeKubelet(self.cluster))
        pods = []
        for rank, lines in enumerate(logs):
            kubelet.serve_node(f"node-{rank}")
            kubelet.logs[f"{name}-1-{rank}"] = lines
            pods.append(self.worker(name, rank))
        self.set_status(name, phase="Running", ready=f"{len(pods)}/{len(pods)}", attempt=1)
        return kubelet, pods

    def real_run(self):
        """Trains with three workers, kills one, and ends when each has logged its progress three times since the last membership.
        Returns the output folder."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        harness.make_data(folder / "data")
        text = harness.job_text(folder / "data", "mlp", workers=3, steps=1_000_000, every=1_000_000)
        (folder / "job.yaml").write_text(text.replace("    steps: ", "    validateEverySteps: 100\n    steps: "))
        run = harness.Run(BIN / "ringmaster", folder / "job.yaml", folder / "out")
        self.addCleanup(lambda: run.process.poll() is None and (run.signal(signal.SIGKILL), run.wait()))
        logs = [folder / f"out/logs/tiny-mlp-1-{rank}.log" for rank in range(3)]
        self.assertIsNotNone(run.wait_for_step(5), run.stderr())
        self.assertTrue(harness.kill(run.workers()["tiny-mlp-1-1"][1][0], signal.SIGKILL))

        def all_have_three_lines():
            members = [re.findall(r" steps=.* generation=(\d+) ", log.read_text()) for log in logs]
            newest = max((of for read in members for of in read), key=int)
            return int(newest) % 2**32 > 1 and all(read.count(newest) >= 3 for read in members)
        while not all_have_three_lines():
            self.assertIsNotNone(run.next_line(), run.stderr())
        run.signal(signal.SIGINT)
        self.assertEqual(run.wait(), 130, run.stderr())
        return folder / "out"

    def test_the_curves_and_busy_times_of_a_real_run(self):
        out = self.real_run()
        name = self.unmanaged("tiny-mlp")
        logs = []
        for rank in range(3):
            lines = (out / f"logs/{name}-1-{rank}.log").read_text().splitlines()
            logs.append([f"{line[:23]}Z {line}" for line in lines if re.match(r"\d{4}-\d\d-\d\dT", line)])
        self.follow(name, logs)
        records = {}
        values = {}
        for line in (out / "metrics.jsonl").read_text().splitlines():
            read = json.loads(line)
            values = {**values, **(dict(zip(values, read)) if isinstance(read, list) else read)}
            records[values["step"]] = values
        validations = {event["step"]: event["loss"] for event in map(json.loads, (out / "events.jsonl").read_text().splitlines())
                       if event["reason"] == "Validated"}

        url = self.serve(name)
        run = self.messages(url, lambda kind, data: kind == "run" and data.get("curves") == "logs" and len(data["validation"]["step"]) >= 2)
        for step, loss in zip(run["validation"]["step"], run["validation"]["loss"]):
            self.assertAlmostEqual(loss, validations[step], delta=1e-5 * validations[step])
        busy = self.messages(url, lambda kind, data: kind == "busy" and len(data["windows"]) >= 3 and len(data["workers"]) == 3)
        self.assertEqual(sorted(busy["workers"]), [f"{name}-1-{rank}" for rank in range(3)])
        recorded = [window["seconds"] for window in harness.busy_times(out)]
        seconds = [value for window in recorded for value in window if value is not None]
        for _, means, longest in busy["windows"][1:]:  # the first window is the first step
            for mean, most in zip(means, longest):
                self.assertLessEqual(mean, most)
                self.assertTrue(min(seconds) / 2 < mean < 2 * max(seconds), (mean, seconds))

        page = self.open(url)
        page.wait("document.querySelector('#phase').textContent === 'Running'")
        self.see(page, "#busy", "node.querySelectorAll('tbody tr').length === 3")
        self.see(page, "#lr", "/learning rate: now 0\\.0/.test(node.getAttribute('aria-label'))")
        self.see(page, "#loss", "/validation: now \\d/.test(node.getAttribute('aria-label'))")
        self.assertTrue(page.run("return document.querySelector('#curve-note').hidden"))
        self.assertIn("Validation", page.run("return document.querySelector('#tiles').textContent"))
        page.wait("document.querySelectorAll('#gang .span').length > 3 && document.querySelector('[data-mark=failed]')")
        last = max(records)
        curve = page.run_async("const done = arguments[arguments.length - 1];"
                               f"fetch('/api/steps?from=0&to={last}&job=default/{name}').then((one) => one.json()).then(done)")
        self.assertGreaterEqual(len(curve["step"]), 3)
        self.assertEqual(curve["step"], sorted(set(curve["step"])))
        for step, loss, rate, speed in zip(curve["step"], curve["loss"], curve["lr"], curve["rate"]):
            self.assertAlmostEqual(loss, records[step]["loss"], delta=1e-5 * abs(records[step]["loss"]))
            self.assertAlmostEqual(rate, records[step]["lr"], delta=1e-5 * records[step]["lr"])
            self.assertGreater(speed, 0)
        self.assertEqual(page.problems(), [])

    def test_a_straggler_is_marked(self):
        name = self.unmanaged("gpt")
        windows = 3  # rendezvous::StragglerRule::kWindows
        logs = [[progress(-100 + 5 * i, rank, 10 * i, 0.06 if rank == 1 else 0.03) for i in range(1, windows + 1)]
                for rank in range(3)]
        kubelet, pods = self.follow(name, logs)
        page = self.open(self.serve(name))
        self.see(page, "#busy", "node.querySelectorAll('tr.slow').length === 1")
        self.assertIn(f"{pods[1]} – slow", page.run("return document.querySelector('#busy tr.slow').textContent"))
        self.assertIn("2.00 ×", page.run("return document.querySelector('#busy tr.slow').textContent"))
        # Live: it is as fast as the others again.
        for i in range(windows + 1, 2 * windows + 1):
            for rank, pod in enumerate(pods):
                kubelet.logs[pod].append(progress(-100 + 5 * i, rank, 10 * i, 0.03, loss=1.5))
        self.see(page, "#busy", "node.querySelectorAll('tbody tr').length === 3 && !node.querySelector('tr.slow')")
        self.see(page, "#loss", "node.getAttribute('aria-label').includes('now 1.500, least 1.500, most 2.500')")
        self.assertEqual(page.problems(), [])

    def test_status_watch_marks_a_slow_worker(self):
        name = self.unmanaged("slow")
        self.follow(name, [[progress(-100 + 5 * i, rank, 10 * i, 0.06 if rank == 1 else 0.03) for i in range(1, 4)]
                           for rank in range(3)])
        self.set_status(name, progress={"step": 30, "totalSteps": 100, "loss": "2.5", "eta": "2m05s"})
        watching, read_until = self.on_terminal("status", name, "-w")
        read_until(b"slow-1-1  Running on node-1, busy 60.00 ms per step, slow")
        seen = read_until(b"slow-1-2  Running on node-2, busy 30.00 ms per step\x1b")
        self.assertIn(b"ETA 2m05s", seen)
        self.set_status(name, phase="Succeeded", conditions=[{"type": "Succeeded", "status": "True", "reason": "AllStepsDone"}])
        read_until(b"Succeeded")
        self.assertEqual(watching.wait(60), 0)

    def test_without_the_right_to_read_logs_the_curves_begin_with_the_page(self):
        name = self.unmanaged("blind")
        self.follow(name, [[progress(-100, 0, 10, 0.03)]])
        rules = [{"apiGroups": ["ringmaster.dev"], "resources": ["trainingjobs"], "verbs": ["get", "list", "watch"]},
                 {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
                 {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["list", "watch"]}]
        self.cluster.apply_text(json.dumps({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "blind"}, "rules": rules}))
        self.cluster.apply_text(json.dumps({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "blind"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "blind"},
            "subjects": [{"kind": "User", "name": "blind"}]}))
        page = self.open(self.serve(name, kubeconfig=self.cluster.kubeconfig_of("blind")))
        page.wait("document.querySelectorAll('#workers-list tr').length === 1")
        for step, loss in ((20, "2.25"), (30, "2.0")):
            self.set_status(name, progress={"step": step, "totalSteps": 100, "loss": loss, "samplesPerSecond": "810"})
            page.wait(f"document.querySelector('#steps').textContent.startsWith('step {step} of 100')")
        self.see(page, "#loss", "node.getAttribute('aria-label').includes('now 2.000, least 2.000, most 2.250')")
        self.assertFalse(page.run("return document.querySelector('#curve-note').hidden"))
        self.assertTrue(page.run("return document.querySelector('#lr-card').hidden && document.querySelector('#busy-card').hidden"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
