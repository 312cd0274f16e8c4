# SPDX-License-Identifier: Apache-2.0
"""Run and Step of PyTorch."""

from __future__ import annotations

import ctypes
import functools
import warnings
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, Union

import torch

from .. import _data, _native, _run, _safetensors, _state
from .._errors import EXIT_DEVICE, EXIT_MEMORY, Error
from . import _data as _datasets
from . import _evaluation, _foreign, _loaders, _objects, _scaler, _schedulers, _tensors, _undo, _weights
from ._buffers import POLICIES, Buffers
from ._watch import Watch

_USED = "used parameters"  # the tensor that counts in how many micro-batches each parameter got a gradient


class _Interrupted(Exception):
    """Ends a backward pass whose gradients are not needed, because the step was interrupted."""


class Step(_run.Step):
    """One attempt at a step: this worker's share of its micro-batches, then the commit."""

    _run: "Run"
    # After the reduction, equal on all workers: whether the parameters stay as they are, because a gradient was not finite and a
    # GradScaler is registered, or because all weights are 0. What overflowed counts as zero in gradient_norm, and in loss.
    skipped: bool = False

    def backward(
        self,
        loss: torch.Tensor,
        *,
        weight: Optional[float] = None,
        scale: float = 1.0,
        last: bool = True,
        inputs: Optional[Iterable[torch.nn.Parameter]] = None,
        retain_graph: Optional[bool] = None,
    ) -> None:
        """Computes the gradient of the current micro-batch, and adds it to the sums.

        loss: shape (), the mean over the samples of the micro-batch, or over that which `weight` counts. Several calls in a
              micro-batch add up: their gradients, as in PyTorch, and their losses.
        weight: of the micro-batch in the means over the step, for example the number of its tokens whose loss counts; default:
                the number of its samples. All micro-batches of a step have one, or none. With 0, the loss is ignored: it may be
                the mean over nothing, which is not a number.
        last: False if a further call follows in this micro-batch; needed only if the number of calls is not always the same.
        inputs, retain_graph: as of torch.Tensor.backward.
        scale: factor for the backward pass, by which the gradients are divided afterwards; a power of two, such as 1024, keeps
               small gradients of float16 from becoming zero. bfloat16 needs none. A registered GradScaler chooses it itself.
        """
        self._run._backward(self, loss, weight, scale, last, inputs, retain_graph)

    def reduce(self) -> bool:
        """Sets the `grad` of each parameter to its mean over the samples of the step, or by weight, equal on all workers.

        `commit` does this itself: call it before, in order to change gradients in between. Returns False if the step must be
        attempted again: then skip the rest of the loop's body.
        """
        return self._run._reduce(self)

    def commit(
        self,
        clip_norm: Optional[float] = None,
        *,
        schedule: Optional[bool] = None,
        optimizers: Union[None, torch.optim.Optimizer, Iterable[torch.optim.Optimizer]] = None,
    ) -> bool:
        """Reduces the gradients over all workers, and updates the parameters and the rest of the state.

        clip_norm: scales the gradient to this Euclidean norm if it is larger, as torch.nn.utils.clip_grad_norm_.
        schedule: calls step() of each registered scheduler, except of a ReduceLROnPlateau. Default: yes, in each step. A scheduler
                  that counts epochs needs schedule=step.ends_epoch; a run that looks like that gets a warning.
        optimizers: which of the registered ones are stepped, with their schedulers; the gradients of the others are dropped, and
                    clip_norm leaves them out. All workers must choose alike, for example by the number of the step.
        When step.skipped is set, the optimizers and schedulers do nothing; a registered GradScaler reduces its scale if a gradient
        was not finite.
        Returns False if the step was interrupted and nothing has changed: run.steps then yields it again.
        """
        return self._run._commit(self, clip_norm, schedule, optimizers)


class Run(_run.Run[Step]):
    """A training job, as this worker sees it. One thread at a time."""

    _add_call = "backward(loss)"

    def __init__(self, settings: _run.Settings) -> None:
        super().__init__(settings)
        self._objects: Dict[str, Any] = {}
        self._running: Set[str] = set()
        self._policies: Dict[str, str] = {}  # of buffers
        self._seeder = _datasets.Seeder(settings.seed, settings.micro_batches)
        # Shapes below: one element per trained parameter, in the order in which backward finishes them.
        self._parameters: List[torch.nn.Parameter] = []
        self._names: List[str] = []
        self._memory = torch.device("cpu")  # where gradients are summed
        self._on_gpu = False  # whether that is a GPU
        # Memory that is `grad` in each step, float32 in self._memory, (elements); None: its `grad` has another form.
        self._gradients: List[Optional[torch.Tensor]] = []
        self._direct: List[
            Optional[bool]
        ] = []  # whether its gradient arrives once per backward; None: unknown so far
        self._arrivals: List[int] = []  # gradients that arrived in the current micro-batch
        # Gradients that the micro-batch adds when it ends, because a further part may come; and those that were added.
        self._held: Dict[int, torch.Tensor] = {}
        self._added: Set[int] = set()
        self._calls = 0  # of backward in the current micro-batch
        self._more_calls = False  # another one follows
        self._arrived = (ctypes.c_float * 0)()  # whether one arrived: what the micro-batch adds to the sums
        self._used: List[bool] = []  # by the last reduction
        self._frozen: List[Tuple[str, torch.nn.Parameter]] = []  # of optimizers, but without a gradient
        self._fixed: List[Tuple[str, torch.Tensor]] = []  # what no micro-batch may change
        self._versions: List[int] = []
        self._groups: _undo.Groups = []  # of the optimizers when run.steps was called
        self._known = _objects.Known({})
        self._undo = _undo.Undo({})
        self._models: List[torch.nn.Module] = []
        self._watched = Watch([])
        self._buffers = Buffers(settings.micro_batches)
        self._used_tensor = -1
        self._scaler = _scaler.LossScaler()
        self._overflow_tensor = -1
        self._elements: List[int] = []  # by index of the tensor in the sums
        self._hooks: List[torch.utils.hooks.RemovableHandle] = []
        self._step: Optional[Step] = None
        self._inverse_scale = 1.0  # of the current micro-batch: by it, gradients are multiplied
        self._overflowed = False  # in the last reduction
        self._in_backward = False
        self._warn_of_unused = True
        self._checked_schedulers = False

    # ---- for user code ----

    def register(
        self, *, running: Sequence[str] = (), buffers: Optional[Mapping[str, str]] = None, **objects: Any
    ) -> None:
        """Names what is state: it is in checkpoints, and a joining worker gets it.

        objects: by a name that stays the same, each one of: a torch.nn.Module, an optimizer, a scheduler, a torch.Generator, a
                 dict, or any object with state_dict() and load_state_dict(). `commit` steps the optimizers and schedulers, and
                 updates a torch.amp.GradScaler, by which `backward` scales the loss.
                 Their state is arrays, numbers, strings and containers of them. Parameters that a registered optimizer has
                 are trained; without an optimizer, all that require a gradient.
        buffers: what becomes of buffers that micro-batches change, by name, such as {"model.queue": "last"}: "mean" over the
                 micro-batches, "sum" of their changes, "min", "max", "last" micro-batch, "constant" or "discard". By default
                 those of torch.ao have what fits them, others are the mean, and those of more than 65,536 elements, apart from
                 normalization layers, are constant.
        running: names of large buffers that become the mean, as buffers={NAME: "mean"}.
        """
        for name, policy in (buffers or {}).items():
            if policy not in POLICIES:
                raise Error(f'run.register(buffers={{"{name}": {policy!r}}}): it is one of {", ".join(POLICIES)}')
        self._policies.update(buffers or {})
        self._check_new_names(objects, self._objects)
        for name, value in objects.items():
            checked = _objects.check(name, value)
            if isinstance(checked, torch.amp.GradScaler):
                self._scaler.register(name, checked)
            self._objects[name] = checked
        _objects.check_schedulers(self._objects)
        self._running.update(running)

    def export(self, path: _safetensors.Path, *, name: Optional[str] = None) -> None:
        """Writes the weights of a registered model as safetensors, with the names of its state_dict. Only rank 0 writes.

        name: as in `register`; may be left out if only one model is registered.
        """
        models = [key for key, value in self._objects.items() if isinstance(value, torch.nn.Module)]
        if name is None and len(models) == 1:
            name = models[0]
        if name not in models:
            raise Error(
                f"run.export: name must be one of the registered models: {', '.join(models) or 'there are none'}"
            )
        if self.rank == 0:
            _weights.export(self._objects[name], path)

    def audit(self, compute: Callable[[], torch.Tensor]) -> Optional[str]:
        """Computes a micro-batch twice, and returns the first tensor that differs; None if all bits are equal.

        compute: returns the loss, shape (), of the same samples on all workers. A difference means that some operation is not
        deterministic on this device, or uses random numbers that the seed does not determine.

        Before run.steps it compares two computations of this worker. In a step, before step.micro_batches, it also compares all
        workers: all must call it in the same step, and get the same answer. Gradients, buffers and the step stay as they are. If
        the step was interrupted, the answer is None, and step.commit() returns False.
        """
        from . import _audit

        step = self._step
        if step is None:
            return _audit.audit(compute, self._objects, lambda: self._seed_micro_batch(0, 0))
        if step._iterated:
            raise Error("run.audit was called after step.micro_batches(...): call it before, in the same step")
        if step._interrupted:  # in an earlier audit of this step
            return None
        number = step.number

        def gather(mine: bytes) -> Optional[List[bytes]]:
            every = self._native.gather(mine, self.world)
            step._interrupted = every is None
            return every

        return _audit.audit_all(compute, self._objects, lambda: self._seed_micro_batch(number, 0), gather)

    def evaluate(
        self,
        dataset: Any,
        *,
        batch_size: Optional[int] = None,
        collate_fn: Optional[Callable[[List[Any]], Any]] = None,
        num_workers: int = 0,
    ) -> _evaluation.Evaluation:
        """Divides the batches of a dataset among the workers, for an evaluation whose results are exact and equal on all.

        dataset: arrays, a map-style dataset, or a DataLoader, whose dataset, collate_fn, batch_size and num_workers are taken. Its
                 samples come in their order, batch_size at a time. A loader that leaves samples out or repeats them is refused.
        Call it at the top of a step, before step.micro_batches, on all workers in the same steps, and let its loop run to the end. If
        the step is interrupted, the results are None, and the step is attempted again. Before and after the loop over the steps,
        each worker evaluates all batches. The program puts the model into eval() and back, and uses torch.no_grad().
        """
        _foreign.check("run.evaluate(...)", dataset)
        if isinstance(dataset, torch.utils.data.DataLoader):
            if dataset.batch_size is None or collate_fn is not None or num_workers != 0:
                raise Error("run.evaluate(DataLoader): it needs a batch_size, and run.evaluate then takes no collate_fn or num_workers")
            batch_size = batch_size or dataset.batch_size
            _loaders.check_evaluated(dataset)
            dataset, collate_fn, num_workers = dataset.dataset, dataset.collate_fn, dataset.num_workers
        if batch_size is None or batch_size < 1:
            raise Error(f"run.evaluate(batch_size={batch_size}): a batch has at least one sample")
        if _datasets.is_stream(dataset):
            raise Error(f"run.evaluate: {type(dataset).__name__} is a stream; it takes a dataset with a length, whose batches can be divided")
        if _data.is_arrays(dataset, _datasets.is_array):
            size = _data.Arrays(dataset, _datasets.take).size
        else:
            size = _data.length(dataset)
        assert size is not None
        step = self._step if self._in_loop else None
        if step is not None and (step._iterated or step._committed):
            raise Error("run.evaluate was called after step.micro_batches(...): call it at the top of a step, before")
        number, rank, world = (0, 0, 1) if step is None else (step.number, self.rank, self.world)
        first = _evaluation.first_number(self.settings.micro_batches)
        keys = [
            (number, first + batch, list(range(batch * batch_size, min(size, (batch + 1) * batch_size))))
            for batch in range(rank, -(-size // batch_size), world)
        ]

        def batches() -> Iterator[Tuple[int, Any]]:
            read = _datasets.evaluated(
                dataset, collate_fn, num_workers, keys, self._seeder, self._ignored_generators
            )
            for (_, batch, _), value in zip(keys, read):
                self.heartbeat()
                # What the loop draws depends on the batch alone: neither on other batches nor on who read the samples.
                self._seed_micro_batch(number, batch)
                yield batch, value

        def gather(mine: bytes) -> Optional[List[bytes]]:
            assert step is not None
            if step._interrupted:  # by an earlier exchange of this step
                return None
            every = self._native.gather(mine, self.world)
            step._interrupted = every is None
            return every

        def finish() -> None:
            # What the code draws next does not depend on this worker's batches.
            self._seed_micro_batch(number, self.settings.micro_batches + 1)

        return _evaluation.Evaluation(batches(), None if step is None else gather, finish)

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._step = None
        super().close()

    # ---- what the loop asks ----

    def _make_step(self, event: _native.Event) -> Step:
        return Step(self, event)

    def _tensors(self) -> List[_run.Tensor]:
        _foreign.check_process_group()
        trained, self._frozen = _objects.trained(self._objects)
        self._known = _objects.Known(self._objects)
        self._groups = _undo.groups_of(self._objects)
        self._undo = _undo.Undo(self._objects)
        self._models = [value for value in self._objects.values() if isinstance(value, torch.nn.Module)]
        self._names = [name for name, _ in trained]
        self._parameters = [parameter for _, parameter in trained]
        count = len(self._parameters)
        if count == 0:
            return []
        if not self.settings.records_digests:
            self._memory = _tensors.memory_of_sums(dict(trained))
        self._on_gpu = self._memory.type == "cuda"
        self._gradients = [None] * count
        self._direct = [None] * count
        self._arrivals = [0] * count
        self._arrived = (ctypes.c_float * count)()
        self._used = [False] * count
        tensors = [_run.Tensor(name, p.numel()) for name, p in zip(self._names, self._parameters)]
        for name, value in self._objects.items():
            if isinstance(value, torch.nn.Module):
                self._fixed += [(f"{name}.{path}", p) for path, p in value.named_parameters()]
                tensors += self._buffers.register(
                    name, value, self._running, len(tensors), self._policies
                )
        self._watched = Watch(self._fixed)
        unknown = (self._running | set(self._policies)) - self._buffers.names()
        if unknown:
            raise Error(
                f"run.register(buffers=..., running=...) names no buffer of a registered model: {', '.join(sorted(unknown))}"
            )
        self._used_tensor = len(tensors)
        tensors.append(_run.Tensor(_USED, count, in_norm=False))
        if self._scaler.enabled:
            self._overflow_tensor = len(tensors)
            tensors.append(_run.Tensor(_scaler.OVERFLOWS, 1, in_norm=False))
        self._elements = [tensor.elements for tensor in tensors]
        for i, parameter in enumerate(self._parameters):
            hook = functools.partial(self._on_gradient, i)
            self._hooks.append(parameter.register_post_accumulate_grad_hook(hook))  # type: ignore[no-untyped-call]
        return tensors

    def _fingerprint(self) -> Mapping[str, str]:
        return _objects.fingerprint(self._objects)

    def _device(self) -> str:
        devices = {p.device for p in self._parameters}
        kernels = torch.backends.cpu.get_cpu_capability()
        text = f"torch {torch.__version__} threads {torch.get_num_threads()} kernels {kernels}"
        for device in sorted(devices, key=str):
            if device.type == "cuda":
                cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
                text += f" {torch.cuda.get_device_name(device)} cuda {torch.version.cuda} cudnn {cudnn}"
                text += f" tf32 {torch.backends.cuda.matmul.allow_tf32} {torch.backends.cudnn.allow_tf32}"
            else:
                text += f" {device.type}"
        return f"{text} matmul {torch.get_float32_matmul_precision()}"

    def _gpu(self) -> Optional[int]:
        return self._memory.index if self._on_gpu else None

    def _describe(self, encoder: _state.Encoder) -> Any:
        return {
            name: _objects.describe(name, value, encoder, self._known) for name, value in self._objects.items()
        }

    def _load(self, state: Any, decoder: _state.Decoder) -> None:
        _run.check_same_names(state, self._objects)
        for name, value in self._objects.items():
            _objects.load(name, value, state[name], decoder, self._known)

    def _as_array(self, value: Any) -> Optional[_state.Array]:
        return _tensors.as_array(value)

    def _from_array(self, array: _state.Array) -> Any:
        return _tensors.from_array(array)

    def _source(
        self, data: Any, collate: Optional[Callable[[List[Any]], Any]], num_workers: int
    ) -> _data.Source:
        _foreign.check("step.micro_batches(...)", data)
        order = None
        if isinstance(data, torch.utils.data.DataLoader):
            if collate is not None or num_workers != 0:
                raise Error("step.micro_batches(DataLoader) takes neither collate_fn nor num_workers: the loader has its own")
            parts = _loaders.parts_of(data, self.settings)
            data, collate, num_workers, order = parts.dataset, parts.collate, parts.num_workers, parts.order
        if _datasets.is_stream(data):
            if num_workers != 0:
                raise Error(
                    f"num_workers={num_workers}: processes cannot share a stream, since each worker reads all of {type(data).__name__}: "
                    "leave it out, or pass a map-style dataset"
                )
            return self._stream(data, collate or torch.utils.data.default_collate)
        keys_from = functools.partial(self._keys_from, order)
        return _datasets.source(data, collate, num_workers, keys_from, self._seeder, order)

    def _seed(self, seed: int) -> None:
        _datasets.seed_all(seed)

    def _state_objects(self) -> Iterable[Any]:
        return self._objects.values()

    def _generator_roots(self) -> Sequence[Tuple[str, Any]]:
        roots: List[Tuple[str, Any]] = []
        for name, value in self._objects.items():
            if isinstance(value, torch.nn.Module):
                roots += [(f"{name}.{path}", part) for path, part in value.named_modules()]
            elif not isinstance(value, torch.optim.Optimizer):
                roots.append((name, value))
        return roots

    def _hint(self, error: BaseException) -> str:
        if isinstance(error, ValueError) and "Expected more than 1 value per channel" in str(error):
            return (
                "a batch normalization needs more than one value per channel: the last step of an epoch has fewer samples than the "
                "others; rm.init(drop_last=True) leaves it out, and a larger samples_per_step gives each micro-batch more samples"
            )
        return super()._hint(error)

    def _exit_code(self, error: BaseException) -> Optional[int]:
        if isinstance(error, torch.cuda.OutOfMemoryError):  # torch.OutOfMemoryError, which is newer
            return EXIT_MEMORY
        if isinstance(error, RuntimeError) and "DefaultCPUAllocator: can't allocate memory" in str(error):
            return EXIT_MEMORY
        if isinstance(error, getattr(torch, "AcceleratorError", ())):
            return EXIT_DEVICE
        if isinstance(error, RuntimeError) and _datasets.lost_reader(error):
            return EXIT_MEMORY
        return super()._exit_code(error)

    def _keys_from(
        self, order: Optional[_data.Order], size: int, step: int, v: int
    ) -> Iterator[Tuple[int, int, List[int]]]:
        """Yields what this worker computes from (step, v) on if its share stays as it is."""
        assert self._step is not None
        share = self._step._share
        while True:
            for micro_batch in range(v, share.stop):
                indices, _ = self._samples(step, micro_batch, size, order)
                if indices:
                    yield step, micro_batch, indices
            step, v = step + 1, share.start

    # ---- a step ----

    def _begin_step(self, step: Step) -> None:
        self._step = step
        self._buffers.begin_step()
        self._scaler.begin_step()
        self._undo.take()
        self._versions = [value._version for _, value in self._fixed]
        self._drop_gradients()
        for name, parameter in self._frozen:
            if parameter.requires_grad:
                raise Error(
                    f"{name} was frozen when run.steps(...) was called, so its gradient is not summed: unfreeze parameters "
                    "before, or let it require a gradient from the start and set the learning rate of its group to 0"
                )

    def _drop_gradients(self) -> None:
        # Also of parameters that are not trained: a gradient that only this worker has must not reach an optimizer.
        for model in self._models:
            for parameter in model.parameters():
                parameter.grad = None

    def _take_back(self) -> None:
        self._undo.put_back()
        self._check_fixed("in a step that was interrupted")

    def _check_fixed(self, when: str) -> None:
        for (name, value), version in zip(self._fixed, self._versions):
            if value._version != version:
                raise Error(
                    f"{name} changed {when}: parameters change in step.commit() only, which calls the optimizer, or when it has "
                    "returned True. Initialize parameters before run.steps(...)"
                )

    def _begin_micro_batches(self) -> None:
        self._check_fixed("between the start of the step and its micro-batches")
        self._undo.begin_micro_batches()

    def _begin_micro_batch(self) -> None:
        self._arrivals = [0] * len(self._parameters)
        self._held = {}
        self._added = set()
        self._calls = 0
        self._watched.begin_micro_batch()
        self._scaler.begin_micro_batch(self._memory)

    def _backward(
        self,
        step: Step,
        loss: torch.Tensor,
        weight: Optional[float],
        scale: float,
        last: bool,
        inputs: Optional[Iterable[torch.nn.Parameter]],
        retain_graph: Optional[bool],
    ) -> None:
        step._current()
        step._set_weight(weight)
        ignored = step._given_weight == 0
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not (loss.requires_grad or ignored):
            raise Error(
                "step.backward takes the loss of the micro-batch, a tensor with one element that depends on the parameters; got "
                f"{_describe_loss(loss)}"
            )
        if not scale > 0:
            raise Error(f"step.backward(scale={scale}): the scale is greater than 0")
        if self._scaler.enabled:
            if scale != 1.0:
                raise Error(
                    f"step.backward(scale={scale}): the registered GradScaler chooses the scale: leave it out"
                )
            scale = self._scaler.scale
        if self._calls == 0:
            for parameter in self._parameters:
                parameter.grad = None
        # With a scale, which keeps numbers in the range of float16, the weight is for the gradients, which are float32.
        apart = weight is not None and (scale != 1.0 or self._scaler.enabled)
        inverse_scale = (step._factor if apart else 1.0) / scale
        if self._calls > 0 and inverse_scale != self._inverse_scale:
            raise Error(f"step.backward(scale={scale}): all calls in a micro-batch have the same scale")
        self._calls += 1
        self._more_calls = not last
        if ignored:
            return step._add_loss(0.0)
        factor = scale if apart else step._factor * scale
        self._inverse_scale = inverse_scale
        self._in_backward = True
        try:
            (loss * factor if factor != 1.0 else loss).backward(  # type: ignore[no-untyped-call]
                inputs=None if inputs is None else list(inputs), retain_graph=retain_graph
            )
        except _Interrupted:
            pass
        finally:
            self._in_backward = False
        # Those that are not in the sums yet, which zero_grad() must not remove.
        for i, parameter in enumerate(self._parameters):
            if self._arrivals[i] > 0 and parameter.grad is not None:
                self._held[i] = self._whole(i)
        step._add_loss(self._scaler.finite_loss(float(loss.detach())))

    def _on_gradient(self, i: int, parameter: torch.Tensor) -> None:
        """Adds the gradient of parameter i, while backward computes those of the layers before it."""
        step = self._step
        if step is None or step.micro_batch is None:
            return  # not in training
        if not self._in_backward:
            raise Error("loss.backward() was called in a micro-batch: call step.backward(loss) instead")
        if step._interrupted:
            parameter.grad = None
            raise _Interrupted
        self._arrivals[i] += 1
        if not self._direct[i] or self._more_calls:
            self._native.heartbeat()
            return
        if i in self._added:
            raise Error(
                f"the gradient of {self._names[i]} arrived in two parts, though it did not before: "
                + (
                    "pass last=False to each call of step.backward but the last one of a micro-batch"
                    if self._calls > 1
                    else "checkpoint with use_reentrant=False"
                )
            )
        self._add_gradient(i, self._whole(i))
        if step._interrupted:
            raise _Interrupted

    def _whole(self, i: int) -> torch.Tensor:
        """Takes the gradient from parameter i, and returns it with the parts of earlier calls of backward."""
        parameter = self._parameters[i]
        gradient = parameter.grad
        assert gradient is not None
        parameter.grad = None
        earlier = self._held.pop(i, None)
        return gradient if earlier is None else earlier + gradient

    def _add_gradient(self, i: int, gradient: torch.Tensor) -> None:
        self._added.add(i)
        if gradient.layout != torch.strided:
            raise Error(
                f"the gradient of {self._names[i]} is sparse ({gradient.layout}), and the sums are dense: create the layer with "
                "sparse=False"
            )
        if self._inverse_scale != 1.0 or self._scaler.enabled:
            gradient = self._scaler.finite(gradient.to(self._memory, torch.float32) * self._inverse_scale)
        self._add_values(i, gradient)

    def _add_values(self, tensor: int, values: torch.Tensor) -> None:
        assert self._step is not None
        held = values.to(self._memory, torch.float32).contiguous()
        self._set_stream()
        # The stream runs what it gets later after the sums have read `held`, so the memory may be used again.
        self._step._add(tensor, held.data_ptr())

    def _add_floats(self, step: _run.Step, tensor: int, values: "ctypes.Array[ctypes.c_float]") -> bool:
        if not self._on_gpu:
            return super()._add_floats(step, tensor, values)
        self._add_values(tensor, torch.tensor(list(values)))
        return not step._interrupted

    def _mean_floats(self, tensor: int, elements: int) -> List[float]:
        values: List[float] = self._mean_in(torch.empty(elements, device=self._memory), tensor).tolist()
        return values

    def _set_stream(self) -> None:
        if self._on_gpu:
            self._native.set_stream(torch.cuda.current_stream(self._memory).cuda_stream)

    def _mean_in(self, values: torch.Tensor, tensor: int) -> torch.Tensor:
        """Writes the mean over the micro-batches to `values`, float32 (elements) in self._memory."""
        self._set_stream()
        self._native.gradient(tensor, values.data_ptr())
        return values

    def _end_micro_batch(self, step: Step) -> None:
        # Gradients that may arrive in parts, or by several calls of backward, are complete only now.
        for i in sorted(self._held):
            if self._direct[i] is None:
                self._direct[i] = self._arrivals[i] == 1 and self._calls == 1
            self._add_gradient(i, self._held[i])
        self._held = {}
        self._check_fixed(f"in micro-batch {step.micro_batch}")
        if (changed := self._watched.changed()) is not None:
            raise Error(
                f"{changed} changed in micro-batch {step.micro_batch}, by its `data`: parameters change in step.commit() only, or when "
                "it has returned True. Initialize parameters before run.steps(...)"
            )
        self._buffers.take_changes(
            step._weight, self._add_values, step._current(), step.micro_batch == step._last_micro_batch
        )
        self._arrived[:] = [float(arrivals > 0) for arrivals in self._arrivals]
        self._add_floats(step, self._used_tensor, self._arrived)
        if self._scaler.enabled:
            self._add_values(self._overflow_tensor, self._scaler.overflow)

    def _restore(self) -> None:
        self._buffers.restore()

    def _reduce(self, step: Step) -> bool:
        reduced_before = step.loss is not None
        if not reduced_before:
            self._check_fixed("between the start of the step and step.commit()")
            self._undo.check_micro_batches()
        if not step._reduce() or reduced_before:
            return not step._interrupted
        used = self._mean(self._used_tensor)
        self._used = [value > 0 for value in used.tolist()]
        self._overflowed = self._scaler.enabled and float(self._mean(self._overflow_tensor)) > 0
        step.skipped = self._overflowed or step.weight == 0
        for i, parameter in enumerate(self._parameters):
            parameter.grad = self._gradient(i) if self._used[i] else None
        return True

    def _mean(self, tensor: int) -> torch.Tensor:
        """Returns the mean over the micro-batches, float32 (elements) on the CPU."""
        return self._mean_in(torch.empty(self._elements[tensor], device=self._memory), tensor).cpu()

    def _gradient(self, i: int) -> torch.Tensor:
        parameter = self._parameters[i]
        values = self._gradients[i]
        if values is None:
            values = torch.empty(parameter.numel(), device=self._memory)
        values = self._mean_in(values, i)
        if parameter.dtype == torch.float32 and parameter.device == self._memory and parameter.is_contiguous():
            self._gradients[i] = values
            return values.view(parameter.shape)
        return torch.empty_like(parameter, requires_grad=False).copy_(values.view(parameter.shape))

    def _commit(
        self,
        step: Step,
        clip_norm: Optional[float],
        schedule: Optional[bool],
        chosen: Union[None, torch.optim.Optimizer, Iterable[torch.optim.Optimizer]],
    ) -> bool:
        if clip_norm is not None and not clip_norm > 0:
            raise Error(f"step.commit(clip_norm={clip_norm}): the norm is greater than 0")
        optimizers = self._chosen(chosen)
        reduced_before = step.loss is not None  # the program may have changed gradients since
        if not self._reduce(step):
            return False
        assert step.gradient_norm is not None
        added = _undo.added_parameter(self._objects, self._groups)
        if added is not None:
            raise Error(
                f"{added} after run.steps(...) was called, so its gradient is not summed over the workers: give the optimizer all "
                "parameters before. One that got no gradient in a step stays as it is, so compute what is not trained yet under "
                "torch.no_grad()"
            )
        trained = self._parameters
        if chosen is not None:
            kept = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
            trained = [p for p in self._parameters if id(p) in kept]
            for parameter in self._parameters:
                if id(parameter) not in kept:
                    parameter.grad = None
        gradients = [p.grad for p in trained if p.grad is not None]
        if clip_norm is not None and gradients:
            norm = torch.tensor(step.gradient_norm, dtype=torch.float32)
            if reduced_before or len(trained) != len(self._parameters):
                norm = torch.linalg.vector_norm(
                    torch.stack([torch.linalg.vector_norm(g.float()).cpu() for g in gradients])
                )
            # As clip_grad_norm_, in float32.
            coefficient = clip_norm / (norm + 1e-6)
            torch._foreach_mul_(gradients, min(1.0, float(coefficient)))
        self._buffers.finish_step(self._mean)
        learning_rate = float(optimizers[0].param_groups[0]["lr"]) if optimizers else 0.0
        if not step.skipped:
            for optimizer in optimizers:
                optimizer.step()
        if schedule is None:
            self._warn_of_epochs()
        if schedule is not False and not step.skipped:
            for scheduler in self._objects.values():
                if _objects.steps_by_itself(scheduler) and (chosen is None or scheduler.optimizer in optimizers):
                    scheduler.step()
        self._scaler.update(self._overflowed, step.number)
        self._drop_gradients()
        del gradients
        self._forget_shared_gradients()
        step._commit(learning_rate)
        if self._warn_of_unused:
            self._warn_of_unused = False
            if self._buffers.averaged and self.rank == 0:
                averaged = sorted(self._buffers.averaged)
                warnings.warn(
                    f"ringmaster: the buffers {', '.join(averaged[:10])} become the mean over the micro-batches of a step. If one must "
                    f'not, choose what it becomes: run.register(..., buffers={{"{averaged[0]}": "last"}})',
                    stacklevel=3,
                )
            of_step = {id(parameter) for parameter in trained}
            unused = [
                name
                for name, parameter, used in zip(self._names, self._parameters, self._used)
                if not used and id(parameter) in of_step
            ]
            if unused and self.rank == 0:
                shown = ", ".join(unused[:10]) + (f" and {len(unused) - 10} more" if len(unused) > 10 else "")
                warnings.warn(
                    f"ringmaster: no micro-batch of the first step gave a gradient to {shown}", stacklevel=3
                )
        return True

    def _warn_of_epochs(self) -> None:
        """Warns of schedulers that count epochs, as far as the number of steps shows it. Once."""
        if self._checked_schedulers or self.rank != 0:
            return
        self._checked_schedulers = True
        for name, value in self._objects.items():
            why = _schedulers.counts_epochs(value, self._total)
            if why is not None:
                warnings.warn(
                    f"ringmaster: step.commit() calls {name}.step() after each step, and in {self._total} steps {why}. If it counts "
                    "epochs, call step.commit(schedule=step.ends_epoch); if it counts steps, step.commit(schedule=True)",
                    stacklevel=4,
                )


    def _chosen(
        self, chosen: Union[None, torch.optim.Optimizer, Iterable[torch.optim.Optimizer]]
    ) -> List[torch.optim.Optimizer]:
        registered = [value for value in self._objects.values() if isinstance(value, torch.optim.Optimizer)]
        if chosen is None:
            return registered
        wanted = [chosen] if isinstance(chosen, torch.optim.Optimizer) else list(chosen)
        for optimizer in wanted:
            if not any(optimizer is one for one in registered):
                raise Error("step.commit(optimizers=...) takes registered optimizers: run.register(...) names them")
        return [one for one in registered if any(one is optimizer for optimizer in wanted)]

    def _forget_shared_gradients(self) -> None:
        """Gives up the memory of gradients that the program keeps, for example in the state of an optimizer."""
        for i, values in enumerate(self._gradients):
            if values is not None and _tensors.is_shared(values):
                self._gradients[i] = None


def _describe_loss(loss: object) -> str:
    if not isinstance(loss, torch.Tensor):
        return type(loss).__name__
    return f"shape {tuple(loss.shape)}" + ("" if loss.requires_grad else ", requires_grad False")
