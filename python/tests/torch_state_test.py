# SPDX-License-Identifier: Apache-2.0
"""The state of ringmaster.torch: checkpoints, what a joining worker gets, and weights in files."""

import collections
import json
import os
import pathlib
import re
import sys
import unittest
from unittest import mock

from training import PACKAGE, Case, program

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import ringmaster.torch as rm
from ringmaster import _native, _state
from ringmaster.torch import _objects, _tensors


def encode(name, value):
    """Returns the state of an object as a joining worker gets it: bytes, and arrays in separate memory."""
    encoder = _state.Encoder(_tensors.as_array)
    meta = _state.to_bytes(_objects.describe(name, value, encoder))
    held = {key: bytearray(array.view()) for key, array in encoder.arrays.items()}
    arrays = {
        key: _state.Array(array.type, (), torch.frombuffer(held[key], dtype=torch.uint8).data_ptr() if held[key] else 0,
                          array.bytes, held[key])
        for key, array in encoder.arrays.items()
    }
    return meta, arrays


def load(name, value, state):
    meta, arrays = state
    _objects.load(name, value, _state.from_bytes(meta), _state.Decoder(arrays, _tensors.from_array))


def data():
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(96, 10, generator=generator)
    return x, (x @ torch.randn(10, 3, generator=generator)).argmax(1)


def net():
    return nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.25), nn.Linear(16, 3))


class Counter:
    """State of a user."""

    def __init__(self):
        self.values = {"steps": 0, "history": [], "last": torch.zeros(2)}

    def state_dict(self):
        return self.values

    def load_state_dict(self, values):
        self.values = values


def train(steps, folder="", build=net, weights=None, **options):
    run = rm.init(micro_batches=4, samples_per_step=32, seed=7, checkpoint_folder=folder, **options)
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=20)
    counter, numbers, generator = Counter(), {}, torch.Generator()
    registered = dict(model=model, optimizer=optimizer, scheduler=scheduler, counter=counter, numbers=numbers)
    registered["generator"] = generator
    run.register(**registered)
    first = None
    for step in run.steps(steps):
        first = step.number if first is None else first
        for x, y in step.micro_batches(data()):
            step.backward(cross_entropy(model(x), y))
        if step.commit(clip_norm=1.0):
            counter.values["steps"] += 1
            counter.values["history"].append(step.loss)
            counter.values["last"] = torch.rand(2, generator=generator)
            numbers[step.number] = ("seen", step.gradient_norm)
    if weights:
        run.export(weights)
    run.close()
    bits = {}
    for name, value in registered.items():
        meta, arrays = encode(name, value)
        bits[name] = (meta, {key: bytes(array.view()) for key, array in arrays.items()})
    return first, bits


class Checkpoints(Case):
    def test_a_run_that_is_continued_has_the_same_bits(self):
        folder = self.folder()
        _, whole = train(7)
        first, part = train(3, folder, checkpoint_every=2)
        self.assertEqual(first, 0)
        self.assertNotEqual(part, whole)
        first, continued = train(7, folder, checkpoint_every=2)
        self.assertEqual(first, 3)
        for name, value in whole.items():
            self.assertEqual(continued[name], value, name)

    def test_a_program_that_registers_other_names_is_refused(self):
        folder = self.folder()
        train(2, folder)
        run = rm.init(micro_batches=4, samples_per_step=32, seed=7, checkpoint_folder=folder)
        model = net()
        run.register(model=model, adam=torch.optim.AdamW(model.parameters()))
        with self.assertRaises(SystemExit) as caught:
            next(run.steps(3))
        self.assertEqual(caught.exception.code, 64)
        self.assertRegex(caught.exception.message, "of another run: program.adam is .* and was not set")
        run.close()

    def test_a_dataset_of_another_size_is_refused(self):
        folder = self.folder()
        train(2, folder)
        original = globals()["data"]
        self.addCleanup(globals().update, data=original)
        globals()["data"] = lambda: tuple(values[:90] for values in original())
        self.fails("the dataset has 90 samples, but step 2 was reached with 96", train, 3, folder)

    def test_files_have_readable_names_and_no_pickle(self):
        folder = self.folder()
        train(2, folder)
        files = [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]
        text = b"".join(path.read_bytes() for path in files)
        for name in (b"model.0.weight", b"model.1.running_mean", b"optimizer.state.0.exp_avg", b"counter.last"):
            self.assertIn(name, text)
        self.assertNotIn(b"ctorch._utils", text)


class State(Case):
    def test_optimizers_and_schedulers_continue_in_another_process(self):
        from torch.optim import lr_scheduler

        optimizers = {
            "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
            "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1, amsgrad=True),
            "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
            "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
            "capturable": lambda p: torch.optim.NAdam(p, lr=torch.tensor(0.01)),
            "named": lambda p: torch.optim.Adam([("first", p[0]), ("second", p[1])]),
        }
        schedulers = {
            "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
            "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 4]),
            "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
            "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20, cycle_momentum=False),
            "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, cycle_momentum=False),
            "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
            "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0),
            "SequentialLR": lambda o: lr_scheduler.SequentialLR(
                o, [lr_scheduler.LinearLR(o, total_iters=3), lr_scheduler.ExponentialLR(o, 0.9)], [3]
            ),
            "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
                [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)], optimizer=o
            ),
        }

        def parameters():
            return [nn.Parameter(torch.arange(3.0)), nn.Parameter(torch.ones(2, 2))]

        def step(p, optimizer, scheduler, count):
            for number in range(count):
                for index, parameter in enumerate(p):
                    parameter.grad = torch.sin(parameter.detach() + number + index)
                optimizer.step()
                if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
                    scheduler.step(1.0)
                else:
                    scheduler.step()

        pairs = [(o, "StepLR") for o in optimizers] + [("SGD", s) for s in schedulers]
        for o, s in pairs:
            with self.subTest(optimizer=o, scheduler=s):
                p, q = parameters(), parameters()
                one = optimizers[o](p)
                one_schedule = schedulers[s](one)
                step(p, one, one_schedule, 4)
                other = optimizers[o](q)
                other_schedule = schedulers[s](other)
                load("optimizer", other, encode("optimizer", one))
                load("scheduler", other_schedule, encode("scheduler", one_schedule))
                with torch.no_grad():
                    for a, b in zip(p, q):
                        b.copy_(a)
                self.assertEqual(encode("optimizer", one)[0], encode("optimizer", other)[0])
                self.assertEqual(encode("scheduler", one_schedule)[0], encode("scheduler", other_schedule)[0])
                step(p, one, one_schedule, 3)
                step(q, other, other_schedule, 3)
                for a, b in zip(p, q):
                    self.assertTrue(torch.equal(a, b))
                self.assertEqual(one.param_groups[0]["lr"], other.param_groups[0]["lr"])

    def test_state_more_precise_than_its_parameter_keeps_its_bits(self):
        class Precise(torch.optim.SGD):
            def step(self, closure=None):
                for parameter in self.param_groups[0]["params"]:
                    self.state[parameter].setdefault("master", parameter.detach().float() + 1e-4)

        one = Precise([nn.Parameter(torch.ones(3).bfloat16())], lr=0.1)
        other = Precise([nn.Parameter(torch.ones(3).bfloat16())], lr=0.1)
        one.step()
        load("optimizer", other, encode("optimizer", one))
        master = other.state[other.param_groups[0]["params"][0]]["master"]
        self.assertEqual(master.dtype, torch.float32)
        self.assertTrue(torch.equal(master, torch.ones(3) + 1e-4))

    def test_a_model_that_differs_is_refused_with_its_differences(self):
        state = encode("model", nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)))
        for model, text in (
            (nn.Sequential(nn.Linear(4, 3)), "1.weight: not in this program's model"),
            (nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2), nn.Linear(2, 2)), "2.weight: not in the state"),
            (nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 5)), "1.weight: F32 (2, 3) in the state, F32 (5, 3) here"),
            (nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2).bfloat16()), "F32 (2, 3) in the state, BF16 (2, 3) here"),
        ):
            with self.subTest(text):
                self.fails(text, load, "model", model, state)

    def test_extra_state_and_buffers(self):
        class Extra(nn.Module):
            def __init__(self, value):
                super().__init__()
                self.value = value
                self.register_buffer("kept", torch.tensor([value]))
                self.register_buffer("transient", torch.tensor([value]), persistent=False)

            def get_extra_state(self):
                return {"value": self.value, "tensor": torch.tensor(self.value)}

            def set_extra_state(self, state):
                self.value = state["value"] + int(state["tensor"])

        model = nn.Sequential(Extra(0))
        load("model", model, encode("model", nn.Sequential(Extra(4))))
        self.assertEqual((model[0].value, model[0].kept.item(), model[0].transient.item()), (8, 4, 4))

    def test_values(self):
        import numpy

        values = {
            "none": None, "flag": True, "int": 2**70, "float": 0.1, "inf": float("inf"), "text": "ä\0", "list": [1, [2.5]],
            "tuple": (1, ("a",)), "bytes": b"\0\xff", "set": {3, 1, 2}, 5: "integer key", ("a", 1): "tuple key", "$tuple": 1,
            "ordered": collections.OrderedDict([("z", 1), ("a", 2)]), "counter": collections.Counter("abca"),
            "deque": collections.deque([1, 2], maxlen=3), "tensor": torch.arange(6).reshape(2, 3)[:, ::2],
            "scalar": torch.tensor(2.5, dtype=torch.bfloat16), "empty": torch.empty(0, 3), "numpy": numpy.arange(3.0),
            "number": numpy.float32(0.25), "size": torch.Size([2, 3]),
            "nested": {"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}},
        }  # fmt: skip
        copy = {}
        load("values", copy, encode("values", values))
        self.assertEqual(set(copy), set(values))
        for key, value in values.items():
            if isinstance(value, torch.Tensor):
                self.assertEqual(copy[key].dtype, value.dtype)
                self.assertTrue(torch.equal(copy[key], value))
            elif key == "numpy":
                numpy.testing.assert_array_equal(copy[key], value)
            elif key == "nested":
                self.assertEqual((copy[key]["a.b"].item(), copy[key]["a"]["b"].item()), (1, 0))
            else:
                self.assertEqual(copy[key], value)
                self.assertEqual(type(copy[key]), tuple if key == "size" else type(value))
        self.assertEqual(list(copy["ordered"]), ["z", "a"])
        self.assertEqual(copy["deque"].maxlen, 3)

    def test_equal_states_have_equal_bytes(self):
        one = {"a": torch.ones(1), "b": {2: "x", 1: torch.zeros(1)}, "s": {"p", "q", "r"}}
        other = {"s": {"r", "q", "p"}, "b": {1: torch.zeros(1), 2: "x"}, "a": torch.ones(1)}
        (meta, arrays), (other_meta, other_arrays) = encode("x", one), encode("x", other)
        self.assertEqual(meta, other_meta)
        self.assertEqual(list(arrays), list(other_arrays), "the order of the arrays is part of the state")

    def test_values_that_only_code_could_store_are_refused_by_name(self):
        endless = {}
        endless["again"] = [endless]
        for value, text in (
            ({"a": [1, lambda: 0]}, "the state x.a.1 is a builtins.function"),
            ({"a": object()}, "the state x.a is a builtins.object"),
            ({"a": torch.eye(2).to_sparse()}, "cannot be stored"),
            (endless, "the state x.again.0 contains itself"),
        ):
            with self.subTest(text):
                self.fails(text, encode, "x", value)

    def test_that_cannot_be_stored_is_found_after_the_first_step(self):
        """Without a checkpoint, nothing else asks for the state before the end."""
        model = nn.Linear(10, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.state[model.weight]["when"] = lambda: 0
        run = rm.init(micro_batches=2, samples_per_step=4)
        self.addCleanup(run.close)
        run.register(model=model, optimizer=optimizer)
        committed = []

        def train():
            for step in run.steps(5):
                for x, y in step.micro_batches(data()):
                    step.backward(cross_entropy(model(x), y))
                if step.commit():
                    committed.append(step.number)

        self.fails("the state optimizer.state.0.when is a builtins.function", train)
        self.assertEqual(committed, [0])

    def test_is_described_once_if_nothing_asks_for_it(self):
        counter = Counter()
        model = nn.Linear(10, 3)
        run = rm.init(micro_batches=2, samples_per_step=4)
        self.addCleanup(run.close)
        run.register(model=model, counter=counter)
        described = []
        describe = rm.Run._describe
        with mock.patch.object(rm.Run, "_describe", lambda *these: described.append(counter.values["steps"]) or describe(*these)):
            for step in run.steps(5):
                for x, y in step.micro_batches(data()):
                    step.backward(cross_entropy(model(x), y))
                if step.commit():
                    counter.values["steps"] += 1
        self.assertEqual(described, [1, 5])

    def test_damage_is_an_error(self):
        model = nn.Linear(2, 2)
        meta, arrays = encode("model", model)
        self.fails("no array model.bias", load, "model", model, (meta, {"model.weight": arrays["model.weight"]}))
        self.fails("unknown form $later", load, "x", {}, (b'{"$later": 1}', {}))
        self.fails("does not fit this program's SGD", load, "x", torch.optim.SGD(model.parameters()), (b'{"state": {}}', {}))


class Files(Case):
    def build(self):
        torch.manual_seed(3)
        model = nn.ModuleDict({"embedding": nn.Embedding(5, 4), "norm": nn.BatchNorm1d(4), "head": nn.Linear(4, 5, bias=False)})
        model["head"].weight = model["embedding"].weight
        return model

    def test_export_and_load(self):
        path = os.path.join(self.folder(), "model.safetensors")
        model = self.build()
        rm.export(model, path)
        copy = self.build()
        nn.init.zeros_(copy["embedding"].weight)
        rm.load(copy, path)
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(copy.state_dict()[name], value), name)
        self.assertIs(copy["head"].weight, copy["embedding"].weight)
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        self.assertEqual(header["__metadata__"], {"format": "pt", "head.weight": "embedding.weight"})
        self.assertNotIn("head.weight", header)
        self.assertEqual(os.listdir(os.path.dirname(path)), ["model.safetensors"], "no parts are left")

    def test_a_run_exports_its_model(self):
        path = os.path.join(self.folder(), "weights.safetensors")
        train(1, weights=path)
        model = net()
        before = model[0].weight.clone()
        rm.load(model, path)
        self.assertFalse(torch.equal(model[0].weight, before))

    def test_folders_of_hugging_face(self):
        folder = self.folder()
        model = self.build()
        self.fails("neither model.safetensors nor model.safetensors.index.json", rm.load, model, folder)
        parts = {"a.safetensors": ["embedding"], "b.safetensors": ["norm"]}
        weight_map = {}
        for file, names in parts.items():
            part = nn.ModuleDict({name: model[name] for name in names})
            rm.export(part, os.path.join(folder, file))
            weight_map.update((name, file) for name in part.state_dict())
        index = pathlib.Path(folder, "model.safetensors.index.json")
        index.write_text(json.dumps({"weight_map": weight_map}))
        copy = self.build()
        nn.init.zeros_(copy["embedding"].weight)
        rm.load(copy, folder)
        self.assertTrue(torch.equal(copy["head"].weight, model["head"].weight))
        index.write_text(json.dumps({"weight_map": {"x": "../a.safetensors"}}))
        self.fails("not a file of its folder", rm.load, copy, folder)
        index.write_text("{}")
        self.fails("is damaged", rm.load, copy, folder)
        rm.export(model, os.path.join(folder, "model.safetensors"))
        rm.load(copy, folder)

    def test_differences_are_listed(self):
        path = os.path.join(self.folder(), "weights.safetensors")
        rm.export(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2), nn.Linear(1, 1)), path)
        model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 7), nn.Identity(), nn.Linear(1, 1))
        before = model[0].weight.clone()
        for text in (
            "  3.weight (1, 1): not in the file",
            "  2.bias (1,): not in the model",
            "  1.weight: (2, 3) in the file, (7, 3) in the model",
        ):
            self.fails(text, rm.load, model, path)
        self.assertTrue(torch.equal(model[0].weight, before), "nothing was loaded")

    def test_types_are_converted(self):
        path = os.path.join(self.folder(), "weights.safetensors")
        rm.export(nn.Linear(2, 2).bfloat16(), path)
        model = nn.Linear(2, 2)
        rm.load(model, path)
        self.assertTrue(torch.equal(model.weight, model.weight.bfloat16().float()))

    def test_damaged_files(self):
        path = pathlib.Path(self.folder(), "weights.safetensors")
        model = nn.Linear(2, 2)
        rm.export(model, path)
        good = path.read_bytes()
        header = json.loads(good[8 : 8 + int.from_bytes(good[:8], "little")])

        def changed(**fields):
            entry = {**header["weight"], **fields}
            text = json.dumps({**header, "weight": entry}).encode()
            return len(text).to_bytes(8, "little") + text + good[-24:]

        for data, text in (
            (b"", "not a safetensors file"),
            (good[:30], "a header of"),
            (b"\xff" * 8 + good[8:], "a header of"),
            (good[:8] + b"x" + good[9:], "not a safetensors file"),
            (good[:-4], "do not fit"),
            (changed(dtype="F128"), "unknown type F128"),
            (changed(shape=[2, 3]), "do not fit weight"),
            (changed(data_offsets=[-8, 8]), "do not fit weight"),
            (changed(data_offsets=None), "not a safetensors file"),
        ):
            path.write_bytes(data)
            with self.subTest(text):
                self.fails(text, rm.load, model, path)


class Ends(Case):
    LOOP = """
import sys, torch, ringmaster.torch as rm
run = rm.init(micro_batches=2, samples_per_step=4)
model = torch.nn.Linear(2, 2)
run.register(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
class Data:
    def __len__(self): return 8
    def __getitem__(self, index):
        {}
        return torch.ones(2)
for step in run.steps(2):
    for x in step.micro_batches(Data()):
        step.backward(model(x).sum())
    step.commit()
"""

    def test_an_exception_ends_the_job_with_its_traceback(self):
        ended = program(self.LOOP.format("raise ValueError('sample %d is damaged' % index)"))
        self.assertEqual(ended.returncode, 64)
        self.assertIn("ValueError: sample", ended.stderr)
        self.assertEqual(ended.stderr.count("Traceback"), 1)

    def test_memory_and_storage_have_codes_that_restart(self):
        self.assertEqual(program(self.LOOP.format("raise MemoryError")).returncode, 71)
        self.assertEqual(program(self.LOOP.format("raise OSError(5, 'I/O error')")).returncode, 74)
        self.assertEqual(program(self.LOOP.format("raise FileNotFoundError(2, 'no file')")).returncode, 64)

    def test_memory_of_a_gpu_restarts_with_every_version_of_torch(self):
        run = rm.init(micro_batches=2)
        self.addCleanup(run.close)
        error = torch.cuda.OutOfMemoryError("no memory")
        newer = torch.__dict__.pop("OutOfMemoryError", None)  # the name that version 2.5 added
        try:
            self.assertEqual(run._exit_code(error), 71)
            self.assertIsNone(run._exit_code(ValueError()))
        finally:
            if newer is not None:
                torch.OutOfMemoryError = newer

    def test_other_ends_are_those_of_the_program(self):
        self.assertEqual(program(self.LOOP.format("sys.exit(3)")).returncode, 3)
        self.assertEqual(program(self.LOOP.format("pass")).returncode, 0)

    def test_the_report_of_an_exception_has_no_frames_of_the_package(self):
        from ringmaster._run import describe_exception

        run = rm.init(micro_batches=2, samples_per_step=4)
        model = nn.Linear(10, 3)
        run.register(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
        try:
            for step in run.steps(1):
                for _ in step.micro_batches(lambda step, v: [][v]):
                    pass
        except IndexError as error:
            report = describe_exception(error)
        run.close()
        first = report.splitlines()[0]
        self.assertTrue(first.startswith(f"{__file__}:"), first)
        self.assertTrue(first.endswith("IndexError: list index out of range"), first)
        self.assertNotIn("ringmaster/_run.py", report)
        self.assertIn("Traceback (most recent call last)", report)

    def test_the_report_of_an_error_in_torch_names_the_line_of_the_program(self):
        from ringmaster._errors import describe_exception

        try:
            nn.Linear(10, 3)(torch.ones(2, 2))
        except RuntimeError as error:
            report = describe_exception(error)
        self.assertRegex(report, rf"^{re.escape(__file__)}:\d+: RuntimeError: ")
        self.assertIn("site-packages/torch/nn/modules/linear.py", report)
        try:
            json.loads("{")
        except ValueError as error:
            report = describe_exception(error)
        self.assertRegex(report, rf"^{re.escape(__file__)}:\d+: json.decoder.JSONDecodeError: ")

    def test_the_report_of_an_error_in_an_installed_program_names_its_last_line(self):
        folder = pathlib.Path(self.folder()) / "site-packages"
        folder.mkdir()
        (folder / "installed.py").write_text("def work():\n    raise ValueError('damaged')\n")
        ended = program(
            "import runpy, sys\nfrom ringmaster._errors import describe_exception\n"
            "try:\n    runpy.run_module('installed')['work']()\n"
            "except ValueError as error:\n    error.__traceback__ = error.__traceback__.tb_next\n"
            "    print(describe_exception(error).splitlines()[0])",
            PYTHONPATH=f"{folder}:{PACKAGE}",
        )
        self.assertEqual(ended.stdout, f"{folder}/installed.py:2: ValueError: damaged\n", ended.stderr)

    def test_a_library_that_is_missing_or_another(self):
        ended = program("import ringmaster.torch as rm; rm.init(micro_batches=1)", RINGMASTER_LIBRARY="/nowhere/libringmaster.so")
        self.assertIn("was not found in any of: /nowhere/libringmaster.so", ended.stderr)
        ended = program("import ringmaster.torch as rm; rm.init(micro_batches=1)", RINGMASTER_LIBRARY=torch._C.__file__)
        self.assertIn("cannot be used", ended.stderr)


class Audit(Case):
    def audit(self, model, compute):
        run = rm.init(micro_batches=1, deterministic=False)
        self.addCleanup(run.close)
        run.register(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
        before = {name: value.clone() for name, value in model.state_dict().items()}
        found = run.audit(compute)
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)
        return found

    def test_a_deterministic_micro_batch_passes(self):
        model = net()
        x, y = data()
        self.assertIsNone(self.audit(model, lambda: cross_entropy(model(x), y)))

    def test_the_first_difference_is_named(self):
        generator = torch.Generator()

        class Noise(nn.Module):
            def forward(self, x):
                return x + torch.rand(x.shape, generator=generator)

        model = nn.Sequential(nn.Linear(10, 4), Noise(), nn.Linear(4, 3))
        x, y = data()
        self.assertEqual(self.audit(model, lambda: cross_entropy(model(x), y)), "output 0 of model.1")

        class NoisyGradient(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, gradient):
                return gradient + torch.rand(gradient.shape, generator=generator)

        model = nn.Sequential(nn.Linear(10, 4), nn.Linear(4, 3))
        compute = lambda: cross_entropy(model[1](NoisyGradient.apply(model[0](x))), y)  # noqa: E731
        self.assertRegex(self.audit(model, compute), r"gradient of model\.0\.(weight|bias)")


class AuditInStep(Case):
    """Audits within steps of a world of one worker; another worker is what a replaced exchange says."""

    def train(self, audit=lambda run, step, compute: None, build=net, steps=4):
        """Calls audit in each step before its micro-batches. Returns the weights."""
        run = rm.init(micro_batches=4, samples_per_step=32, seed=7, checkpoint_folder="", deterministic=False)
        self.addCleanup(run.close)
        model = build()
        run.register(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2))
        x, y = data()
        self.commits = []
        for step in run.steps(steps):
            audit(run, step, lambda: cross_entropy(model(x[:8]), y[:8]))
            for inputs, classes in step.micro_batches((x, y)):
                step.backward(cross_entropy(model(inputs), classes))
            self.commits.append(step.commit())
        run.close()
        return {name: value.tolist() for name, value in model.state_dict().items()}

    def exchange(self, *others):
        """Lets run.audit take part in exchanges with workers that say what others[i](exchange, mine) returns."""
        self.exchanges = 0

        def gather(handle, mine, world):
            self.exchanges += 1
            return [mine, *(other(self.exchanges, mine) for other in others)]

        return mock.patch.object(_native.Handle, "gather", gather)

    def test_that_finds_nothing_changes_no_bit(self):
        answers = []
        expected = self.train()
        audited = self.train(lambda run, step, compute: answers.append((run.audit(compute), run.audit(compute))))
        self.assertEqual(audited, expected)
        self.assertEqual(self.commits, [False, True, True, True, True])  # the first step is attempted twice
        self.assertEqual(answers, 5 * [(None, None)])

    def test_that_differs_the_second_time(self):
        class Counts(nn.Module):
            calls = 0

            def forward(self, x):
                Counts.calls += 1
                return x + Counts.calls

        answers = []
        build = lambda: nn.Sequential(nn.Linear(10, 4), Counts(), nn.Linear(4, 3))  # noqa: E731
        self.train(lambda run, step, compute: answers.append(run.audit(compute)), build, steps=1)
        self.assertEqual(set(answers), {"output 0 of model.1 differs when rank 0 computes it again"})

    def test_that_differs_on_another_worker(self):
        place = 6  # a tensor of the trace

        def other(exchange, mine):
            if exchange % 3 == 1:  # number of tensors, hash of all, ...
                return mine[:8] + bytes(8) + mine[16:]
            if exchange % 3 == 2:  # their hashes
                return mine[: 8 * place] + bytes(8) + mine[8 * place + 8 :]
            return mine

        answers, same = [], lambda exchange, mine: mine
        with self.exchange(same, other):
            self.train(lambda run, step, compute: answers.append(run.audit(compute)), steps=1)
        self.assertEqual(self.exchanges, 3 * len(answers))
        # The outputs of five layers and of the model, the loss, then gradients.
        self.assertEqual(set(answers), {"the loss differs between workers: rank 0, rank 1; rank 2"})

    def test_of_which_another_worker_computes_fewer_tensors(self):
        def other(exchange, mine):
            if exchange % 3 == 1:
                return (0).to_bytes(8, sys.byteorder) + bytes(8) + mine[16:]
            return bytes(len(mine))

        answers = []
        with self.exchange(other):
            self.train(lambda run, step, compute: answers.append(run.audit(compute)), steps=1)
        self.assertEqual(set(answers), {"output 0 of model.0 differs between workers: rank 0; rank 1"})

    def test_that_another_worker_finds_by_itself(self):
        def other(exchange, mine):
            return mine[:16] + b"gradient of model.0.bias".ljust(200, b"\0") + b"pod-1".ljust(200, b"\0")

        answers = []
        with self.exchange(other):
            self.train(lambda run, step, compute: answers.append(run.audit(compute)), steps=1)
        self.assertEqual(set(answers), {"gradient of model.0.bias differs when pod-1 (rank 1) computes it again"})

    def test_that_is_interrupted(self):
        expected = self.train()
        real = _native.Handle.gather
        for place in (1, 3):  # exchange of a step that is interrupted
            calls, answers = [0], []

            def gather(handle, mine, world):
                calls[0] += 1
                return None if calls[0] == place else real(handle, mine, world)

            def audit(run, step, compute):
                answers.append((run.audit(compute), run.audit(compute)))  # the second one has no exchange any more

            with mock.patch.object(_native.Handle, "gather", gather):
                self.assertEqual(self.train(audit), expected)
            self.assertEqual(set(answers), {(None, None)})
            self.assertEqual(self.commits.count(False), 2)
            self.assertEqual(len(self.commits), 6)
            self.assertEqual(calls[0], 2 * 6 - (place % 2))


if __name__ == "__main__":
    unittest.main()
