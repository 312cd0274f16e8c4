# SPDX-License-Identifier: Apache-2.0
"""A program that a spare runs cannot see a difference to a normal start."""

import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import textwrap
import unittest
import zipfile

SPARE = pathlib.Path(__file__).resolve().parents[3] / "worker/agent/program/preload.py"

SEES = """
import json, os, pickle, signal, sys
class Local: pass
assert pickle.loads(pickle.dumps(Local())).__class__ is Local
assert sys.modules["__main__"].Local is Local
seen = {"argv": sys.argv, "path": sys.path, "name": __name__, "file": __file__, "cwd": os.getcwd(), "rank": os.environ.get("RANK"),
        "stdin": sys.stdin.read(), "names": sorted(name for name in globals() if name != "seen"), "spec": __spec__ and __spec__.name,
        "gone": os.environ.get("GONE"), "doc": __doc__, "command": sys.orig_argv, "files": sorted(os.listdir("/proc/self/fd")),
        "signals": [str(signal.getsignal(n)) for n in signal.valid_signals()], "mask": [*signal.pthread_sigmask(0, ())],
        "killed": open("/proc/self/oom_score_adj").read(), "threads": os.listdir("/proc/self/task").__len__()}
print(json.dumps(seen))
"""


class Preload(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "slow.py").write_text("import os\nprint('imported', os.environ.get('RANK'), flush=True)\n")
        (self.folder / "package").mkdir()
        (self.folder / "package/__init__.py").write_text("")

    def program(self, text, name="program.py"):
        (self.folder / name).write_text(textwrap.dedent(text))
        return name

    def command(self, *words):
        return subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=self.folder, stdin=subprocess.DEVNULL,
                              env={"PATH": os.environ["PATH"], "RANK": "3", "PYTHONPATH": str(self.folder)})

    def spare(self, *words, options=(), modules="slow", order=True):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            process = subprocess.Popen([sys.executable, *options, SPARE, modules, *words], cwd=self.folder, stdin=theirs, text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       env={"PATH": os.environ["PATH"], "GONE": "1", "PYTHONPATH": str(self.folder)})
            theirs.close()
            self.ready = ours.recv(1)
            if order and self.ready:
                ours.sendall(f"PATH={os.environ['PATH']}\0RANK=3\0PYTHONPATH={self.folder}\0".encode())
            ours.shutdown(socket.SHUT_WR)
            out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def check_same(self, *words, options=()):
        normal, spare = self.command(*options, *words), self.spare(*words, options=options)
        self.assertEqual(spare.stdout, "imported None\n" + normal.stdout)
        self.assertEqual(spare.stderr, normal.stderr)
        self.assertEqual(spare.returncode, normal.returncode)
        return normal

    def test_a_script(self):
        name = self.program(SEES)
        self.check_same(name, "one", "--two", "-c")
        self.check_same(str(self.folder / name))
        (self.folder / "link.py").symlink_to("package/real.py")
        self.program(SEES, "package/real.py")
        self.check_same("link.py")

    def test_a_module(self):
        self.program(SEES, "package/entry.py")
        self.check_same("-m", "package.entry", "one", "-m")

    def test_a_folder(self):
        self.program(SEES, "package/__main__.py")
        self.check_same("package", "one")
        with zipfile.ZipFile(self.folder / "archive.zip", "w") as archive:
            archive.write(self.folder / "package/__main__.py", "__main__.py")
        self.check_same("archive.zip")

    def test_options_of_python(self):
        name = self.program("assert False\nimport sys\nprint(sys.flags.optimize, sys.path)\n")
        self.check_same(name, options=["-O", "-u"])
        self.check_same(name, options=["-O", "-P"])

    def test_exit_codes_and_errors(self):
        for text in ("raise SystemExit", "import sys; sys.exit(7)", "import sys; sys.exit('the data is broken')",
                     "def f():\n    raise ValueError('broken')\nf()", "syntax error(", "import os; os._exit(9)",
                     "import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "import absent_module",
                     "import atexit; atexit.register(print, 'end', flush=True); 1 / 0", "raise KeyboardInterrupt",
                     "import sys; sys.excepthook = lambda *error: print(error[:2]); 1 / 0",
                     "import asyncio\nasync def f(): raise GeneratorExit\nasyncio.run(f())"):
            with self.subTest(text):
                self.check_same(self.program(text))

    def test_processes_that_the_program_starts(self):
        name = self.program("""
            import multiprocessing
            def double(n):
                return 2 * n
            if __name__ == "__main__":
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    print(pool.map(double, [1, 2]))
            """)
        self.assertIn("[2, 4]", self.check_same(name).stdout)

    def test_a_module_that_cannot_be_imported(self):
        result = self.spare(self.program(SEES), modules="absent_module")
        self.assertEqual((self.ready, result.returncode), (b"", 1))
        self.assertIn("No module named 'absent_module'", result.stderr)

    def test_a_module_that_opens_a_device(self):
        (self.folder / "opens.py").write_text("file = open('/dev/full')\nthen = open('/dev/null')\n")
        result = self.spare(self.program(SEES), modules="opens")
        self.assertEqual((self.ready, result.returncode), (b"", 1))
        self.assertEqual(result.stderr, "importing opens opens /dev/full, which the rank uses\n")

    def test_without_an_order_nothing_runs(self):
        result = self.spare(self.program(SEES), order=False)
        self.assertEqual((result.stdout, result.returncode), ("imported None\n", 0))


if __name__ == "__main__":
    unittest.main()
