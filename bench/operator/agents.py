# SPDX-License-Identifier: Apache-2.0
"""The stage agents-restart of bench/operator/run. One process (bench_agents) answers for the agents of a job's pods, whose nodes
are fake."""

import contextlib
import json
import pathlib
import statistics
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from agent_environment import agent_environment

CLIENTS = 8  # ask the API server for tokens
START_S, END_S = 120, 10
LATE_S = 5  # events, and a status that is written once more
# While nothing is scheduled and no pod starts or ends, only the operator writes these as well.
AT_REST = ("pods", "events")


class Agents:
    """Each agent has what its pod has: environment, token, and the job's authority. They connect to this port, where the pods
    would reach a Service."""

    def __init__(self, binary, api, pods, port):
        self._folder = tempfile.TemporaryDirectory(prefix="ringmaster-agents-")
        file = pathlib.Path(self._folder.name) / "environments.json"
        with ThreadPoolExecutor(CLIENTS) as pool:
            file.write_text(json.dumps(list(pool.map(lambda pod: self._environment(api, pod, port), pods))))
        self._process = subprocess.Popen([binary, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _environment(self, api, pod, port):
        folder = pathlib.Path(self._folder.name) / pod["metadata"]["name"]
        folder.mkdir()
        return {**agent_environment(api, pod, folder), "RINGMASTER_COORDINATOR": f"127.0.0.1:{port}",
                "RINGMASTER_NODE": pod["spec"]["nodeName"], "RINGMASTER_ADDRESS": pod["status"]["podIP"]}

    def started(self):
        """Waits until every program of the next incarnation has been started. Returns the seconds since the failure that ended
        the last one, or since the agents were started."""
        guard = threading.Timer(START_S, self._process.kill)
        guard.start()
        line = self._process.stdout.readline()
        guard.cancel()
        if not line:
            raise SystemExit(f"not within {START_S} s: all programs have been started")
        return float(line.split()[-1])

    def fail(self, rank):
        """Ends the program of this rank with exit code 1."""
        self._process.stdin.write(f"fail {rank}\n")
        self._process.stdin.flush()

    def close(self):
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._folder.cleanup()


def restart_in_pods(bench, contestant, size):
    """Ends the program of one rank, --failures times. Returns the longest time until all ranks of the next incarnation have been
    started."""
    table, name = bench.table, f"1 job x {size}, {contestant.title}"
    contestant.start()
    watch = bench.watch(contestant)
    bench.admin.text("POST", contestant.jobs, json.dumps(contestant.job("gang", size)))
    watch.wait(lambda: len(watch.added) >= size, f"{size} pods", 300)
    bench.wait_pods_run(size)
    pods = bench.admin.json("GET", f"/api/v1/namespaces/default/pods?labelSelector={contestant.selector}")["items"]
    took, writes = [], []
    with contextlib.closing(Agents(bench.flags.bin / "bench_agents", bench.cluster.api, pods,
                                   bench.operator.port("rendezvous"))) as ranks:
        table.add(f"{name}: agents started to all ranks started", ranks.started(), "s")
        for restarts in range(bench.flags.failures):
            wait_runs(bench, contestant, restarts)
            time.sleep(LATE_S)
            served, cpu = bench.served(AT_REST), contestant.cpu_s()
            ranks.fail(size // 2)
            took.append(ranks.started())
            wait_runs(bench, contestant, restarts + 1)
            time.sleep(LATE_S)
            table.add(f"{name}: its CPU for a restart and {LATE_S} s more", contestant.cpu_s() - cpu, "s")
            writes.append(writes_since(bench, served))
        table.add(f"{name}: one rank failed; all started after, p50 of {len(took)}", statistics.median(took), "s")
        table.add(f"{name}: the slowest of them", max(took), "s")
        table.at_most(f"{name}: pods created meanwhile", len(watch.added) - size, "pods", 0)
        table.at_most(f"{name}: writes per restart, the most", max(writes), "writes", 5)
        watch.close()
        bench.clear(contestant.jobs)
    return max(took)


def wait_runs(bench, contestant, restarts):
    """Waits until the job's status shows that it runs after so many restarts."""
    def runs():
        status = bench.admin.json("GET", f"{contestant.jobs}/gang").get("status", {})
        return status.get("phase") == "Running" and status.get("restarts", {}).get("total", 0) == restarts
    bench.cluster.wait(runs, f"the gang runs after {restarts} restarts", 60)


def writes_since(bench, served):
    """Prints what was written since then, and returns the number of writes."""
    counts = {what: count - served.get(what, 0) for what, count in sorted(bench.served(AT_REST).items())
              if not what.startswith("GET ") and count > served.get(what, 0)}
    print("    " + "; ".join(f"{what} {count:.0f}" for what, count in counts.items()), flush=True)
    return sum(counts.values())
