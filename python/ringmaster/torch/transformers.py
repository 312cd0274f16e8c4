# SPDX-License-Identifier: Apache-2.0
"""The Trainer of Hugging Face transformers, in Ringmaster's loop: exact, and workers may die, join or leave.

from ringmaster.torch.transformers import Trainer      # instead of: from transformers import Trainer

trainer = Trainer(model=model, args=arguments, train_dataset=dataset, data_collator=collator)
trainer.train()

What differs from transformers.Trainer:

- A step has gradient_accumulation_steps micro-batches of per_device_train_batch_size samples, for any number of workers, which
  share them. So gradient_accumulation_steps is at least the largest number of workers.
- The loss of a step is the mean over its samples of the losses of the micro-batches; transformers weights by tokens.
- Checkpoints are Ringmaster's: those of the job, or alone, in output_dir/ringmaster every save_steps. The same command continues.
- All workers evaluate and get the same metrics, so callbacks such as EarlyStoppingCallback decide alike.
- Of new layers, the weights must be equal on all workers: call transformers.set_seed before the model is built, or pass model_init.

Arguments that it does not support are refused by name before anything starts. Needs transformers 5.
"""

from __future__ import annotations

import math
import os
import time
from typing import Any, Dict, List, Mapping, Optional

import torch
import transformers
from transformers.trainer_callback import ExportableState, TrainerState
from transformers.trainer_utils import TrainOutput

from . import init
from .._errors import Error

__all__ = ["Trainer"]

_UNSUPPORTED = {  # argument: what to do instead
    "fp16": "use bf16=True: fp16 needs a GradScaler, which skips steps",
    "deepspeed": "every worker has the whole model",
    "fsdp": "every worker has the whole model",
    "parallelism_config": "every worker has the whole model",
    "auto_find_batch_size": "set per_device_train_batch_size",
    "load_best_model_at_end": "call trainer.save_model in a callback",
    "push_to_hub": "call trainer.push_to_hub after training, on rank 0",
    "torch_compile": "pass torch.compile(model)",
    "group_by_length": "the order of the samples is Ringmaster's",
    "use_liger_kernel": "its kernels are not deterministic",
}
_CHOICES = {  # argument: the values that are supported
    "save_strategy": ("no", "steps", "epoch"),
    "train_sampling_strategy": ("random",),
}


def _check(arguments: transformers.TrainingArguments) -> None:
    problems = [
        f"{name}={getattr(arguments, name)!r} is not supported: {instead}"
        for name, instead in _UNSUPPORTED.items()
        if getattr(arguments, name, None)
    ]
    for name, allowed in _CHOICES.items():
        value = getattr(arguments, name, allowed[0])
        if getattr(value, "value", value) not in allowed:
            problems.append(f"{name}={value!r} is not supported: use one of {', '.join(map(repr, allowed))}")
    scheduler = str(getattr(arguments.lr_scheduler_type, "value", arguments.lr_scheduler_type))
    if scheduler in ("reduce_lr_on_plateau", "greedy"):
        problems.append(f"lr_scheduler_type={scheduler!r} is not supported: use one that goes by steps")
    if arguments.data_seed not in (None, arguments.seed):
        problems.append("data_seed is not supported: the order of the samples follows from seed")
    if problems:
        raise Error("TrainingArguments: " + "; ".join(problems))


class _Progress:
    """What callbacks and logs remember, as state of the run."""

    def __init__(self, trainer: "Trainer") -> None:
        self._trainer = trainer
        self.loss_sum = 0.0  # of all steps
        self.logged = (0, 0.0)  # step and loss_sum of the last log

    def _callbacks(self) -> Dict[str, Any]:
        found = [c for c in self._trainer.callback_handler.callbacks if isinstance(c, ExportableState)]
        return {f"{index} {type(callback).__name__}": callback for index, callback in enumerate(found)}

    def state_dict(self) -> Dict[str, Any]:
        state = self._trainer.state
        return {
            "loss_sum": self.loss_sum,
            "logged": list(self.logged),
            "best_metric": state.best_metric,
            "best_global_step": state.best_global_step,
            "callbacks": {name: dict(c.state()["attributes"]) for name, c in self._callbacks().items()},
        }

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        self.loss_sum = values["loss_sum"]
        self.logged = (values["logged"][0], values["logged"][1])
        self._trainer.state.best_metric = values["best_metric"]
        self._trainer.state.best_global_step = values["best_global_step"]
        for name, callback in self._callbacks().items():
            for key, value in values["callbacks"][name].items():
                setattr(callback, key, value)


class Trainer(transformers.Trainer):  # type: ignore[misc]
    """Takes the arguments of transformers.Trainer.

    ringmaster: arguments of ringmaster.torch.init that TrainingArguments has no name for: numerics, threads, deterministic,
        data_fingerprint, transport, checkpoint_folder, checkpoint_every, checkpoint_keep.
    """

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
        }
        if "RINGMASTER_CHANNEL_FD" not in os.environ:  # alone: no job says where checkpoints belong
            folder = "" if args.save_strategy == "no" else os.path.join(args.output_dir, "ringmaster")
            settings.update(checkpoint_folder=folder, checkpoint_keep=args.save_total_limit)
            if args.save_strategy == "steps" and args.save_steps >= 1:
                settings["checkpoint_every"] = int(args.save_steps)
        self.run = init(**{**settings, **(ringmaster or {})})
        super().__init__(model, args, *arguments, **named)

    def train(
        self,
        resume_from_checkpoint: Any = None,
        trial: Any = None,
        ignore_keys_for_eval: Optional[List[str]] = None,
    ) -> TrainOutput:
        """Trains until max_steps or num_train_epochs, and returns the mean loss over all steps."""
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
        began = time.monotonic()
        dataset, collate = self._samples_and_collator()
        per_step = self.args.gradient_accumulation_steps * self.args.per_device_train_batch_size
        per_epoch = math.ceil(len(dataset) / per_step)
        total = (
            self.args.max_steps if self.args.max_steps > 0 else math.ceil(self.args.num_train_epochs * per_epoch)
        )
        self._prepare(total, per_epoch)
        progress = _Progress(self)
        self.run.register(
            model=self.model, optimizer=self.optimizer, scheduler=self.lr_scheduler, progress=progress
        )
        began_training = False
        for step in self.run.steps(total):
            self.state.global_step = step.number
            self.state.is_world_process_zero = self.state.is_local_process_zero = self.run.rank == 0
            if not began_training:
                began_training = True
                self.control = self.callback_handler.on_train_begin(self.args, self.state, self.control)
                if self.args.eval_on_start and step.number == 0:
                    self._evaluate(trial, ignore_keys_for_eval, skip_scheduler=True)
            if step.attempt == 0:
                if step.number % per_epoch == 0:
                    self.control = self.callback_handler.on_epoch_begin(self.args, self.state, self.control)
                self.control = self.callback_handler.on_step_begin(self.args, self.state, self.control)
            rate = self._get_learning_rate()
            for inputs in step.micro_batches(
                dataset, collate_fn=collate, num_workers=self.args.dataloader_num_workers
            ):
                step.backward(self._loss(inputs))
            if not step.commit(clip_norm=self.args.max_grad_norm or None):
                continue
            self.state.global_step = step.number + 1
            self.state.epoch = self.state.global_step / per_epoch
            progress.loss_sum += step.loss
            self.control = self.callback_handler.on_step_end(self.args, self.state, self.control)
            if self.state.global_step % per_epoch == 0 or self.state.global_step == total:
                self.control = self.callback_handler.on_epoch_end(self.args, self.state, self.control)
            self._log_and_evaluate(progress, step.gradient_norm, rate, trial, ignore_keys_for_eval)
            if self.control.should_training_stop:
                self.run.finish()
        return self._finish(progress, time.monotonic() - began, per_step)

    # ---- steps of train ----

    def _samples_and_collator(self) -> Any:
        dataset, collate = self.train_dataset, self.data_collator
        if type(dataset).__module__.split(".")[0] == "datasets":
            return self._remove_unused_columns(dataset, description="training"), collate
        return dataset, self._get_collator_with_removed_columns(collate, description="training")

    def _prepare(self, total: int, per_epoch: int) -> None:
        if self.args.gradient_checkpointing:
            options = {"use_reentrant": False, **(self.args.gradient_checkpointing_kwargs or {})}
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
        self.create_optimizer_and_scheduler(num_training_steps=total)
        self.state = TrainerState()
        self.state.train_batch_size = self.args.per_device_train_batch_size
        self.state.compute_steps(self.args, total)
        self.state.init_training_references(self, total, math.ceil(total / per_epoch), None)
        for name in ("model", "optimizer", "lr_scheduler"):
            setattr(self.callback_handler, name, getattr(self, name))

    def _loss(self, inputs: Any) -> torch.Tensor:
        self.model.train()
        with self.accelerator.autocast(), self.compute_loss_context_manager():
            loss: torch.Tensor = self.compute_loss(self.model, self._prepare_inputs(inputs))
        return loss

    def _log_and_evaluate(
        self,
        progress: _Progress,
        norm: Optional[float],
        rate: float,
        trial: Any,
        ignore_keys_for_eval: Optional[List[str]],
    ) -> None:
        step, (logged_step, logged_sum) = self.state.global_step, progress.logged
        if self.control.should_log and step > logged_step:
            mean = (progress.loss_sum - logged_sum) / (step - logged_step)
            progress.logged = (step, progress.loss_sum)
            self.log({"loss": mean, "grad_norm": norm, "learning_rate": rate})
        if self.control.should_evaluate:
            metrics = self._evaluate(trial, ignore_keys_for_eval)
            self._determine_best_metric(metrics=metrics, trial=trial)
            if isinstance(metrics.get("eval_loss"), float):
                self.run.validated(metrics["eval_loss"], metrics.get("eval_accuracy", math.nan))
        # The library writes the checkpoints.
        self.control.should_save = False

    def _finish(self, progress: _Progress, seconds: float, per_step: int) -> TrainOutput:
        steps = self.state.global_step
        loss = progress.loss_sum / max(1, steps)
        metrics = {
            "train_runtime": round(seconds, 4),
            "train_samples_per_second": round(steps * per_step / seconds, 3),
            "train_steps_per_second": round(steps / seconds, 3),
            "train_loss": loss,
        }
        self.is_in_train = False
        self.log(metrics)
        self.control = self.callback_handler.on_train_end(self.args, self.state, self.control)
        return TrainOutput(steps, loss, metrics)

    # ---- files, which one worker writes ----

    def is_world_process_zero(self) -> bool:
        return self.run.rank == 0

    def is_local_process_zero(self) -> bool:
        return self.run.rank == 0

    def save_model(self, output_dir: Optional[str] = None, _internal_call: bool = False) -> None:
        """Writes the model as save_pretrained does. Only rank 0 writes."""
        if self.run.rank == 0:
            super().save_model(output_dir, _internal_call)
