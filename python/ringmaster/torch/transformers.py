# SPDX-License-Identifier: Apache-2.0
"""The Trainer of Hugging Face transformers, in Ringmaster's loop: exact, and workers may die, join or leave.

from ringmaster.torch.transformers import Trainer      # instead of: from transformers import Trainer

trainer = Trainer(model=model, args=arguments, train_dataset=dataset, data_collator=collator)
trainer.train()

What differs from transformers.Trainer:

- A step has gradient_accumulation_steps micro-batches of per_device_train_batch_size samples, for any number of workers, which
  share them. So gradient_accumulation_steps is at least the largest number of workers.
- The loss of a step is the mean over its labels on all workers, where transformers 5 counts labels, else that over its samples. A
  micro-batch whose labels are all -100 counts nothing.
- Checkpoints are Ringmaster's: the job says which; alone, in output_dir/ringmaster as save_strategy says. The same command continues.
- All workers evaluate and get the same metrics, so callbacks such as EarlyStoppingCallback decide alike.
- fp16=True computes in float16 on CPUs as well, where transformers uses float32. The scale of the loss is state, and all workers skip
  the same steps; on_pre_optimizer_step and on_optimizer_step are not called in them.
- When the worker of rank 0 dies, another one gets its rank: state.is_world_process_zero becomes True in the middle of the training.
- Of new layers, the weights must be equal on all workers: call transformers.set_seed before the model is built, or pass model_init.

An argument, an overridden method or a callback that it would not honour is refused by name before anything starts. Needs
transformers 5.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import multiprocessing
import os
import time
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Tuple

import torch
import transformers
from transformers import trainer_utils
from transformers.trainer_callback import (
    DefaultFlowCallback,
    ExportableState,
    ProgressCallback,
    TrainerControl,
    TrainerState,
)
from transformers.trainer_utils import TrainOutput

from . import Step, init
from .._errors import Error

__all__ = ["Trainer"]

_ALL = 2**31 - 1  # checkpoints

# ---- what becomes of each field of TrainingArguments; tests/process/transformers_trainer compares with the installed version ----

_HONOURED = frozenset(
    """
    output_dir per_device_train_batch_size num_train_epochs max_steps learning_rate lr_scheduler_kwargs warmup_steps optim_args
    weight_decay adam_beta1 adam_beta2 adam_epsilon optim_target_modules gradient_accumulation_steps max_grad_norm
    label_smoothing_factor bf16 fp16 bf16_full_eval fp16_full_eval tf32 activation_checkpointing activation_checkpointing_kwargs
    gradient_checkpointing gradient_checkpointing_kwargs use_cache logging_strategy logging_steps logging_first_step log_level
    disable_tqdm report_to run_name project trackio_space_id trackio_bucket_id trackio_static_space_id eval_strategy eval_steps
    eval_delay per_device_eval_batch_size prediction_loss_only eval_on_start eval_do_concat_batches eval_accumulation_steps
    include_for_metrics batch_eval_metrics save_steps save_total_limit metric_for_best_model greater_is_better full_determinism
    seed use_cpu dataloader_num_workers dataloader_drop_last remove_unused_columns label_names hub_token hub_private_repo
    hub_model_id hub_strategy hub_always_push hub_revision
    """.split()
)
# What they tune does not exist here, or changes the speed only.
_HARMLESS = frozenset(
    """
    average_tokens_across_devices torch_compile_backend torch_compile_mode liger_kernel_config log_on_each_node log_level_replica
    logging_nan_inf_filter eval_use_gather_object restore_callback_states_from_checkpoint dataloader_pin_memory
    dataloader_persistent_workers dataloader_prefetch_factor dataloader_in_order length_column_name ddp_find_unused_parameters
    ddp_bucket_cap_mb ddp_broadcast_buffers ddp_static_graph ddp_backend ddp_timeout fsdp_config do_train do_eval do_predict
    resume_from_checkpoint local_rank
    """.split()
)


def _one_of(*values: str) -> Callable[[Any], bool]:
    return lambda value: str(getattr(value, "value", value)) in values


def _layerwise_or_special(optimizer: Any) -> bool:
    name = str(getattr(optimizer, "value", optimizer))
    return name.endswith("layerwise") or name in ("lomo", "adalomo") or name.startswith("schedule_free")


# Field: whether a value is refused, and what to do instead.
_REFUSED: Dict[str, Tuple[Callable[[Any], bool], str]] = {
    "accelerator_config": (lambda value: bool(value != type(value)()), "the order of the samples is Ringmaster's"),
    "auto_find_batch_size": (bool, "set per_device_train_batch_size"),
    "dataloader_multiprocessing_context": (
        lambda value: value not in (None, multiprocessing.get_start_method()),
        "call multiprocessing.set_start_method at the start of the program",
    ),
    "debug": (bool, "wrap the model in transformers.debug_utils.DebugUnderflowOverflow"),
    "deepspeed": (bool, "every worker has the whole model"),
    "enable_jit_checkpoint": (bool, "SIGTERM writes a checkpoint without it"),
    "fsdp": (bool, "every worker has the whole model"),
    "ignore_data_skip": (bool, "a run that is continued takes the samples that come next"),
    "include_num_input_tokens_seen": (lambda value: value not in ("no", False), "count them in data_collator"),
    "load_best_model_at_end": (bool, "call trainer.save_model in a callback"),
    "lr_scheduler_type": (_one_of("reduce_lr_on_plateau", "greedy"), "use one that goes by steps"),
    "neftune_noise_alpha": (bool, "add the noise in the model's embedding"),
    "optim": (_layerwise_or_special, "use one whose step() needs nothing but the gradients, such as adamw_torch"),
    "parallelism_config": (bool, "every worker has the whole model"),
    "push_to_hub": (bool, "call trainer.push_to_hub after training, on rank 0"),
    "save_on_each_node": (bool, "checkpoints belong to the job; call trainer.save_model in a callback"),
    "save_only_model": (bool, "checkpoints have the whole state; call trainer.save_model for the weights"),
    "save_strategy": (_one_of("best"), "use 'steps', 'epoch' or 'no', and call trainer.save_model in a callback"),
    "skip_memory_metrics": (lambda value: not value, "measure it in a callback"),
    "torch_compile": (bool, "pass torch.compile(model)"),
    "torch_empty_cache_steps": (bool, "call torch.cuda.empty_cache in a callback"),
    "train_sampling_strategy": (lambda value: not _one_of("random")(value), "the order of the samples is Ringmaster's"),
    "use_liger_kernel": (bool, "its kernels are not deterministic"),
}  # fmt: skip
_CHECKED = frozenset(["data_seed"])  # with another field
# Honoured or harmless, but with another meaning than in transformers: whether it has it with these arguments, and which.
_DIFFERENT: Dict[str, Tuple[Callable[[Any], bool], str]] = {
    "gradient_accumulation_steps": (
        lambda arguments: True,
        "the micro-batches of all workers together, so a step has {gradient_accumulation_steps} x {per_device_train_batch_size} "
        "samples for any number of workers",
    ),
    "average_tokens_across_devices": (
        lambda arguments: not arguments.average_tokens_across_devices,
        "the loss is the mean over the labels of the step on all workers, as if it were True",
    ),
    "logging_nan_inf_filter": (
        lambda arguments: arguments.logging_nan_inf_filter,
        "a loss that is not finite ends the job",
    ),
    "save_strategy": (
        lambda arguments: str(getattr(arguments.save_strategy, "value", arguments.save_strategy)) != "no",
        "checkpoints are Ringmaster's: of a job as it says, of a process alone in {output_dir}/ringmaster",
    ),
    "seed": (lambda arguments: True, "the order of the samples follows from it as Ringmaster defines it"),
    "per_device_eval_batch_size": (
        lambda arguments: str(getattr(arguments.eval_strategy, "value", arguments.eval_strategy)) != "no",
        "every worker evaluates all samples",
    ),
    "fp16": (lambda arguments: arguments.fp16 and arguments.use_cpu, "float16 on CPUs as well"),
}

# Methods of transformers.Trainer that a subclass may override: this Trainer, or its evaluation, calls them.
_CALLED = frozenset(
    """
    __init__ train compute_loss compute_loss_context_manager autocast_smart_context_manager _prepare_input _prepare_inputs
    create_optimizer create_scheduler create_optimizer_and_scheduler get_optimizer_cls_and_kwargs get_decay_parameter_names
    _get_learning_rate evaluate evaluation_loop predict prediction_step _evaluate _determine_best_metric get_eval_dataloader
    get_test_dataloader _get_eval_sampler _remove_unused_columns _get_collator_with_removed_columns
    _set_signature_columns_if_needed save_model _save log call_model_init add_callback pop_callback remove_callback
    is_local_process_zero is_world_process_zero _move_model_to_device _validate_args create_accelerator_and_postprocess
    _build_accelerator_args init_hf_repo create_model_card push_to_hub _finish_current_push
    """.split()
)
_NOT_FIRED = ("on_substep_end", "on_save")  # events of callbacks


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _check(arguments: transformers.TrainingArguments) -> None:
    """Errors: all values that would be ignored, each with its remedy."""
    problems = []
    for field in dataclasses.fields(transformers.TrainingArguments):
        name, value = field.name, getattr(arguments, field.name)
        if name in _REFUSED:
            refuses, instead = _REFUSED[name]
            if refuses(value):
                problems.append(f"{name}={getattr(value, 'value', value)!r} is not supported: {instead}")
        elif name not in _HONOURED | _HARMLESS | _CHECKED and value != _default(field):
            problems.append(
                f"{name}={value!r} is not supported: this version of Ringmaster does not know it; leave it at {_default(field)!r}"
            )
    if arguments.data_seed not in (None, arguments.seed):
        problems.append("data_seed is not supported: the order of the samples follows from seed")
    if arguments.world_size > 1:
        problems.append("torchrun or accelerate started this process: start it with `ringmaster run`, or alone")
    if arguments.n_gpu > 1:
        problems.append(
            f"this process sees {arguments.n_gpu} GPUs, and a worker uses one: set CUDA_VISIBLE_DEVICES, and start more workers"
        )
    if problems:
        raise Error("TrainingArguments: " + "; ".join(problems))


def _differences(arguments: transformers.TrainingArguments) -> str:
    """Returns what the arguments mean here and do not mean in transformers."""
    values = {name: getattr(arguments, name) for name in vars(arguments)}
    parts = [
        f"{name}={getattr(values[name], 'value', values[name])}: {meaning.format(**values)}"
        for name, (differs, meaning) in _DIFFERENT.items()
        if differs(arguments)
    ]
    return "ringmaster.torch.transformers: these arguments mean something else than in transformers: " + "; ".join(parts)


def _takes_items(function: Callable[..., Any]) -> bool:
    """Returns whether a function that computes the loss may be called with num_items_in_batch."""
    parameters = inspect.signature(function).parameters
    return "num_items_in_batch" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _check_overrides(trainer: "Trainer") -> None:
    """Errors: all code of the program that would not be called, or not as with transformers."""
    problems = []
    known: FrozenSet[str] = frozenset(name for name, value in vars(transformers.Trainer).items() if callable(value))
    for kind in type(trainer).__mro__:
        if kind is Trainer:
            break
        unused = sorted(name for name in vars(kind) if name in known - _CALLED)
        problems += [
            f"{kind.__name__}.{name} would not be called: the loop over the steps is Ringmaster's. Override compute_loss, use a "
            "callback, or write the loop with ringmaster.torch"
            for name in unused
        ]
    if getattr(trainer, "loss_is_scaled_for_ga", None):
        problems.append("loss_is_scaled_for_ga=True is not supported: return the mean over the micro-batch")
    if problems:
        raise Error("Trainer: " + "; ".join(problems))


def _check_callbacks(callbacks: List[Any]) -> None:
    """Errors: callbacks of the program that wait for an event that does not happen."""
    for callback in callbacks:
        kind = type(callback)
        if kind.__module__.split(".")[0] == "transformers":
            continue  # they copy checkpoints of transformers, which are not written
        for event in _NOT_FIRED:
            if getattr(kind, event) is not getattr(transformers.TrainerCallback, event):
                raise Error(
                    f"{kind.__name__}.{event} would not be called: micro-batches belong to any worker, and the library writes the "
                    "checkpoints. Use on_step_end"
                )


class _Progress:
    """What callbacks and logs remember, as state of the run."""

    def __init__(self, trainer: "Trainer") -> None:
        self._trainer = trainer
        self.steps = 0
        self.loss_sum = 0.0  # of all steps
        self.logged = (0, 0.0)  # step and loss_sum of the last log

    def _callbacks(self) -> Dict[str, Any]:
        found = [c for c in self._trainer.callback_handler.callbacks if isinstance(c, ExportableState)]
        return {f"{index} {type(callback).__name__}": callback for index, callback in enumerate(found)}

    def state_dict(self) -> Dict[str, Any]:
        state = self._trainer.state
        return {
            "steps": self.steps,
            "loss_sum": self.loss_sum,
            "logged": list(self.logged),
            "best_metric": state.best_metric,
            "best_global_step": state.best_global_step,
            "callbacks": {name: dict(c.state()["attributes"]) for name, c in self._callbacks().items()},
        }

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        self.steps = values["steps"]
        self.loss_sum = values["loss_sum"]
        self.logged = (values["logged"][0], values["logged"][1])
        self._trainer.state.best_metric = values["best_metric"]
        self._trainer.state.best_global_step = values["best_global_step"]
        for name, callback in self._callbacks().items():
            for key, value in values["callbacks"][name].items():
                setattr(callback, key, value)


class Trainer(transformers.Trainer):  # type: ignore[misc, unused-ignore]
    """Takes the arguments of transformers.Trainer.

    ringmaster: arguments of ringmaster.torch.init that TrainingArguments has no name for: numerics, threads, deterministic,
        data_fingerprint, transport, checkpoint_folder, checkpoint_every, checkpoint_keep.
    """

    accelerator: Any
    control: Any
    model: Any
    optimizer: Any

    def __init__(
        self,
        model: Any = None,
        args: Optional[transformers.TrainingArguments] = None,
        *arguments: Any,
        ringmaster: Optional[Mapping[str, Any]] = None,
        **named: Any,
    ) -> None:
        if args is None:
            raise Error("Trainer(args=...): TrainingArguments are required")
        _check(args)
        settings: Dict[str, Any] = {
            "micro_batches": args.gradient_accumulation_steps,
            "samples_per_step": args.gradient_accumulation_steps * args.per_device_train_batch_size,
            "seed": args.seed,
            "drop_last": args.dataloader_drop_last,
        }
        alone = "RINGMASTER_CHANNEL_FD" not in os.environ
        if alone:  # no job says where checkpoints belong
            folder = "" if args.save_strategy == "no" else os.path.join(str(args.output_dir), "ringmaster")
            keep = args.save_total_limit or 0
            settings.update(checkpoint_folder=folder, checkpoint_keep=keep if keep > 0 else _ALL)
        settings.update(ringmaster or {})
        self._sets_interval = alone and "checkpoint_every" not in settings
        self.run = init(**settings)
        super().__init__(model, args, *arguments, **named)
        _check_overrides(self)
        self._trained = False

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        if self.args.fp16 and self.accelerator.device.type == "cpu":  # there, accelerate has neither for it
            self.accelerator.native_amp = True
            scaling = self.accelerator.scaler_handler
            self.accelerator.scaler = torch.amp.GradScaler("cpu", **(scaling.to_kwargs() if scaling else {}))

    def train(
        self,
        resume_from_checkpoint: Any = None,
        trial: Any = None,
        ignore_keys_for_eval: Optional[List[str]] = None,
    ) -> TrainOutput:
        """Trains until max_steps or num_train_epochs, and returns the mean loss over all steps. Called once.

        If the run has ended before, the model gets its last weights, and nothing is trained.
        """
        if self._trained:
            raise Error("Trainer.train was called before: a run trains once. For another one, start the program again")
        self._trained = True
        if trial is not None:
            raise Error("Trainer.train(trial=...): a search starts several runs; start the program once for each trial")
        if resume_from_checkpoint:
            raise Error(
                "Trainer.train(resume_from_checkpoint=...): the same command continues from the newest checkpoint of the run"
            )
        if self.train_dataset is None:
            raise Error("Trainer(train_dataset=...): a dataset is required")
        if not hasattr(self.train_dataset, "__len__"):
            raise Error(
                f"Trainer(train_dataset=...): {type(self.train_dataset).__name__} has no length, so the samples of a step are not "
                "defined; use a dataset with a length"
            )
        _check_callbacks(self.callback_handler.callbacks)
        began = time.monotonic()
        self.is_in_train = True  # an evaluation keeps the precision of the model
        dataset, collate = self._samples_and_collator()
        per_step = self.args.gradient_accumulation_steps * self.args.per_device_train_batch_size
        per_epoch = self.run.steps_per_epoch(len(dataset))
        total = (
            self.args.max_steps if self.args.max_steps > 0 else math.ceil(self.args.num_train_epochs * per_epoch)
        )
        self._prepare(total, per_epoch)
        progress = _Progress(self)
        self.run.register(
            model=self.model, optimizer=self.optimizer, scheduler=self.lr_scheduler, progress=progress
        )
        if self.accelerator.scaler is not None:
            self.run.register(scaler=self.accelerator.scaler)
        first: Optional[int] = None  # step of this call
        for step in self.run.steps(total):
            self.state.global_step, self.state.epoch = step.number, step.number / per_epoch
            if first is None:
                first = step.number
                self._begin(ignore_keys_for_eval)
            self._set_rank()
            if step.attempt == 0:
                if step.number % per_epoch == 0:
                    self.control = self.callback_handler.on_epoch_begin(self.args, self.state, self.control)
                self.control = self.callback_handler.on_step_begin(self.args, self.state, self.control)
            rate = self._get_learning_rate()
            for inputs in step.micro_batches(
                dataset, collate_fn=collate, num_workers=self.args.dataloader_num_workers
            ):
                loss, labels = self._loss(inputs)
                step.backward(loss, weight=labels)
            if not step.commit(clip_norm=self.args.max_grad_norm or None):
                continue
            self._count(progress, step, per_epoch)
            self.control = self.callback_handler.on_step_end(self.args, self.state, self.control)
            if self.state.global_step % per_epoch == 0 or self.state.global_step == total:
                self.control = self.callback_handler.on_epoch_end(self.args, self.state, self.control)
            self._check_control()
            self._log_and_evaluate(progress, step.gradient_norm, rate, ignore_keys_for_eval)
            if self.control.should_training_stop and self.state.global_step < total:
                self.run.finish()
        self.state.global_step = progress.steps
        self.state.epoch = progress.steps / per_epoch
        if first is None:  # the run had ended before
            first = progress.steps
            self._begin(ignore_keys_for_eval)
        return self._finish(progress, time.monotonic() - began, progress.steps - first, per_step)

    # ---- steps of train ----

    def _samples_and_collator(self) -> Any:
        dataset, collate = self.train_dataset, self.data_collator
        if type(dataset).__module__.split(".")[0] == "datasets":
            return self._remove_unused_columns(dataset, description="training"), collate
        return dataset, self._get_collator_with_removed_columns(collate, description="training")

    def _prepare(self, total: int, per_epoch: int) -> None:
        if self.args.bf16_full_eval or self.args.fp16_full_eval:  # __init__ has not moved it
            self._move_model_to_device(self.model, self.args.device)
        self._checkpoint_activations()
        special = (transformers.PreTrainedTokenizerBase, transformers.ProcessorMixin)
        if isinstance(self.processing_class, special) and hasattr(self.model, "config"):
            align: Any = trainer_utils.align_special_tokens
            align(self.model, self.processing_class)
        self.create_optimizer_and_scheduler(num_training_steps=total)
        # Autocast, with outputs in float32. The first evaluation would do it, so a worker that joins after it would compute other bits.
        self.accelerator.prepare_model(self.model, evaluation_mode=True)
        self.optimizer.register_step_pre_hook(self._fire("on_pre_optimizer_step"))
        self.optimizer.register_step_post_hook(self._fire("on_optimizer_step"))
        state: Any = TrainerState()
        self.state = state
        state.train_batch_size = self.args.per_device_train_batch_size
        state.compute_steps(self.args, total)
        state.init_training_references(self, total, math.ceil(total / per_epoch), None)
        for name in ("model", "optimizer", "lr_scheduler"):
            setattr(self.callback_handler, name, getattr(self, name))
        if self._sets_interval and self.args.save_strategy != "no":
            every = per_epoch if self.args.save_strategy == "epoch" else self.state.save_steps
            self.run.settings = dataclasses.replace(self.run.settings, checkpoint_every=int(every))

    def _checkpoint_activations(self) -> None:
        # Older versions of transformers, and models that are not theirs, know the second name.
        name = next(name for name in ("activation", "gradient") if hasattr(self.args, f"{name}_checkpointing"))
        if not getattr(self.args, f"{name}_checkpointing"):
            return
        options = {"use_reentrant": False, **(getattr(self.args, f"{name}_checkpointing_kwargs") or {})}
        layers = {key: options.pop(key) for key in ("every_n_layers", "offload") if key in options}
        name = next(name for name in ("activation", "gradient") if hasattr(self.model, f"{name}_checkpointing_enable"))
        getattr(self.model, f"{name}_checkpointing_enable")(**{f"{name}_checkpointing_kwargs": options}, **layers)

    def _fire(self, event: str) -> Callable[..., None]:
        def call(*_: Any) -> None:
            self.control = getattr(self.callback_handler, event)(self.args, self.state, self.control)

        return call

    def _set_rank(self) -> None:
        first, was_first = self.run.rank == 0, self.state.is_world_process_zero
        self.state.is_world_process_zero = self.state.is_local_process_zero = first
        if was_first or not first:
            return
        for callback in self.callback_handler.callbacks:  # the worker that had rank 0 is gone
            if isinstance(callback, ProgressCallback) and callback.training_bar is None:
                callback.on_train_begin(self.args, self.state, self.control)

    def _begin(self, ignore_keys_for_eval: Optional[List[str]]) -> None:
        self._set_rank()
        if self.run.rank == 0:
            transformers.utils.logging.get_logger("transformers.trainer").warning(_differences(self.args))
        self.control = self.callback_handler.on_train_begin(self.args, self.state, self.control)
        if self.args.eval_on_start and self.state.global_step == 0:
            self._evaluate(None, ignore_keys_for_eval, skip_scheduler=True)

    def _loss(self, inputs: Any) -> Tuple[torch.Tensor, Optional[float]]:
        """Returns the loss of a micro-batch and the number of its labels, by which transformers averages; None: it does not."""
        self.model.train()
        inputs = self._prepare_inputs(inputs)
        count: Any = None
        if getattr(self, "loss_is_scaled_for_ga", None) is not False:
            count = self._get_num_items_in_batch([inputs], self.args.device)
        named = {"num_items_in_batch": count} if _takes_items(self.compute_loss) else {}
        with self.compute_loss_context_manager():
            # The mean over the labels of the micro-batch: transformers divides the sum of the losses by what it gets.
            computed: Any = self.compute_loss(self.model, inputs, **named)
        loss: torch.Tensor = computed
        return loss, None if count is None else float(count)

    def prediction_step(self, *arguments: Any, **named: Any) -> Any:
        if self.is_in_train:  # an evaluation may take longer than any step
            self.run.heartbeat()
        return super().prediction_step(*arguments, **named)

    def _count(self, progress: _Progress, step: Step, per_epoch: int) -> None:
        assert step.loss is not None
        progress.steps = self.state.global_step = step.number + 1
        progress.loss_sum += step.loss
        self.state.epoch = self.state.global_step / per_epoch

    def _check_control(self) -> None:
        """Errors: a callback wants what the loop does not do."""
        if self.control.should_epoch_stop:
            raise Error(
                "a callback set control.should_epoch_stop: an epoch has all samples; set control.should_training_stop, which ends "
                "the run"
            )
        expected = TrainerControl()
        DefaultFlowCallback().on_step_end(self.args, self.state, expected)
        if self.control.should_save and not expected.should_save and self.args.save_strategy != "epoch":
            raise Error(
                "a callback set control.should_save: the library writes the checkpoints, as save_strategy or the job says; call "
                "trainer.save_model in the callback for the weights"
            )

    def _log_and_evaluate(
        self,
        progress: _Progress,
        norm: Optional[float],
        rate: float,
        ignore_keys_for_eval: Optional[List[str]],
    ) -> None:
        step, (logged_step, logged_sum) = self.state.global_step, progress.logged
        if self.control.should_log and step > logged_step:
            mean = (progress.loss_sum - logged_sum) / (step - logged_step)
            progress.logged = (step, progress.loss_sum)
            logs = {"loss": mean, "learning_rate": rate}
            if norm is not None:
                logs["grad_norm"] = norm
            self.log(logs)
        if self.control.should_evaluate:
            metrics = self._evaluate(None, ignore_keys_for_eval)
            self._determine_best_metric(metrics=metrics, trial=None)
            if isinstance(metrics.get("eval_loss"), float):
                self.run.validated(metrics["eval_loss"], metrics.get("eval_accuracy", math.nan))
        # The library writes the checkpoints.
        self.control.should_save = False

    def _finish(self, progress: _Progress, seconds: float, steps: int, per_step: int) -> TrainOutput:
        """steps: that this call has trained."""
        loss = progress.loss_sum / max(1, progress.steps)
        metrics = {
            "train_runtime": round(seconds, 4),
            "train_samples_per_second": round(steps * per_step / seconds, 3),
            "train_steps_per_second": round(steps / seconds, 3),
            "train_loss": loss,
        }
        self.is_in_train = False
        self.log(metrics)
        self.control = self.callback_handler.on_train_end(self.args, self.state, self.control)
        return TrainOutput(progress.steps, loss, metrics)

    # ---- files, which one worker writes ----

    def is_world_process_zero(self) -> bool:
        return self.run.rank == 0

    def is_local_process_zero(self) -> bool:
        return self.run.rank == 0

    def save_model(self, output_dir: Optional[str] = None, _internal_call: bool = False) -> None:
        """Writes the model as save_pretrained does. Only rank 0 writes."""
        if self.run.rank == 0:
            super().save_model(output_dir, _internal_call)
