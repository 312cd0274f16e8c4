# SPDX-License-Identifier: Apache-2.0
"""ringmaster.torch.transformers.Trainer with one worker: each argument is honoured or refused, and a run that has ended ends again."""

import dataclasses
import inspect
import math
import os
import unittest
from unittest import mock

from training import Case, interruptions

import torch
import transformers
from accelerate.utils import GradScalerKwargs
from tokenizers import Tokenizer, models
from torch.nn.functional import cross_entropy
from transformers.trainer_callback import ProgressCallback, TrainerCallback

from ringmaster import _native
from ringmaster.torch import Failed, transformers as subject
from ringmaster.torch.transformers import Trainer

WORDS, CONTEXT, SAMPLES = 17, 8, 24
PER_EPOCH = SAMPLES // 4  # steps


class Text(torch.utils.data.Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        tokens = torch.arange(CONTEXT) * (index + 1) % WORDS
        return {"input_ids": tokens, "labels": tokens}


def model():
    transformers.set_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        max_position_embeddings=CONTEXT, attn_implementation="eager",
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


class Of(Case):
    """What makes arguments and trainers in a folder."""

    def arguments(self, **named):
        usual = dict(
            output_dir=self.folder(), max_steps=PER_EPOCH, per_device_train_batch_size=2, gradient_accumulation_steps=2,
            report_to="none", save_strategy="no", disable_tqdm=True, use_cpu=True,
        )  # fmt: skip
        return transformers.TrainingArguments(**{**usual, **named})

    def trainer(self, kind=Trainer, callbacks=(), **named):
        others = {name: named.pop(name) for name in ("compute_loss_func", "processing_class", "ringmaster", "train_dataset") if name in named}
        others = {"train_dataset": Text(), **others}
        trainer = kind(
            model=model(), args=self.arguments(**named), eval_dataset=Text(), callbacks=list(callbacks), **others
        )
        self.addCleanup(trainer.run.close)
        return trainer

    def weights(self, trainer):
        return torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])


class Arguments(Of):
    def test_every_field_of_this_version_is_known(self):
        tables = [subject._HONOURED, subject._HARMLESS, subject._CHECKED, frozenset(subject._REFUSED)]
        fields = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
        self.assertEqual(sorted(fields - frozenset().union(*tables)), [], "say in ringmaster/torch/transformers.py what becomes of them")
        self.assertEqual(sum(map(len, tables)), len(frozenset().union(*tables)), "a field is in two tables")

    def test_the_defaults_are_accepted(self):
        subject._check(transformers.TrainingArguments(output_dir=self.folder()))

    def test_what_is_not_honoured_is_refused(self):
        values = {
            "accelerator_config": {"split_batches": True}, "auto_find_batch_size": True,
            "dataloader_multiprocessing_context": "spawn", "debug": "underflow_overflow", "enable_jit_checkpoint": True,
            "ignore_data_skip": True, "include_num_input_tokens_seen": True, "lr_scheduler_type": "greedy",
            "neftune_noise_alpha": 5.0, "optim": "adalomo", "push_to_hub": True, "save_on_each_node": True, "save_only_model": True,
            "save_strategy": "best", "skip_memory_metrics": False, "torch_compile": True, "torch_empty_cache_steps": 3,
            "train_sampling_strategy": "group_by_length", "use_liger_kernel": True, "data_seed": 3, "load_best_model_at_end": True,
        }  # fmt: skip
        # What TrainingArguments itself refuses here, without GPUs or torchrun.
        assigned = {"deepspeed": {"stage": 2}, "fsdp": True, "parallelism_config": object()}
        self.assertEqual({*values, *assigned}, {*subject._REFUSED, *subject._CHECKED})
        more = {"lr_scheduler_type": {"eval_strategy": "epoch"}, "save_strategy": {"eval_strategy": "epoch"},
                "load_best_model_at_end": {"eval_strategy": "no"}}  # fmt: skip
        for name, value in {**values, **assigned}.items():
            with self.subTest(name):
                arguments = self.arguments(**({name: value, **more.get(name, {})} if name in values else {}))
                if name in assigned:
                    setattr(arguments, name, value)
                self.fails(f"{name}", Trainer, model=model(), args=arguments, train_dataset=Text())
                with self.assertRaises(subject.Error) as caught:
                    subject._check(arguments)
                text = str(caught.exception)
                self.assertRegex(text, rf"^TrainingArguments: {name}\b.* is not supported: \w")
        for name in ("schedule_free_sgd", "galore_adamw_layerwise", "lomo"):
            self.fails("optim=", subject._check, self.arguments(optim=name))
        self.fails("save_only_model=True is not supported", subject._check, self.arguments(save_only_model=True, use_liger_kernel=True))

    def test_a_field_of_a_newer_version_is_refused_unless_it_has_its_default(self):
        arguments = self.arguments()
        fields = [*dataclasses.fields(transformers.TrainingArguments), dataclasses.field(default=3)]
        fields[-1].name = "sharpness"
        for value in (3, 4):
            arguments.sharpness = value
            with mock.patch.object(subject.dataclasses, "fields", lambda _: fields):
                if value == 3:
                    subject._check(arguments)
                else:
                    self.fails("sharpness=4 is not supported: this version of Ringmaster does not know it", subject._check, arguments)

    def test_several_processes_or_gpus_of_transformers(self):
        for name in ("world_size", "n_gpu"):
            with mock.patch.object(transformers.TrainingArguments, name, 2):
                self.fails("start", subject._check, self.arguments())


class Code(Of):
    def test_a_method_that_would_not_be_called(self):
        for name in ("training_step", "get_train_dataloader", "get_batch_samples", "_save_checkpoint", "floating_point_ops"):
            kind = type("Mine", (Trainer,), {name: lambda self: None})
            self.fails(f"Mine.{name} would not be called", self.trainer, kind)

    def test_all_methods_of_this_version_that_are_allowed_exist(self):
        for name in subject._CALLED:
            self.assertTrue(callable(getattr(transformers.Trainer, name)), name)

    def test_a_loss_of_a_whole_step(self):
        scaled = type("Scaled", (Trainer,), {"loss_is_scaled_for_ga": True})
        self.fails("loss_is_scaled_for_ga=True", self.trainer, scaled)

    def test_losses_of_the_program_are_those_that_train(self):
        def loss(outputs, labels, num_items_in_batch):
            total = cross_entropy(outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")
            return total / num_items_in_batch

        class Mine(Trainer):
            def compute_loss(self, model, inputs, return_outputs=False, *, num_items_in_batch):
                labels = inputs.pop("labels")
                return loss(model(**inputs), labels, num_items_in_batch)

        class Mean(Trainer):
            def compute_loss(self, model, inputs, return_outputs=False):
                labels = inputs.pop("labels")
                return cross_entropy(model(**inputs).logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

        trainers = self.trainer(), self.trainer(compute_loss_func=loss), self.trainer(Mine), self.trainer(Mean)
        losses = [trainer.train().training_loss for trainer in trainers]
        for other in losses[1:]:
            self.assertAlmostEqual(losses[0], other, places=5)

    def test_the_mean_is_over_labels(self):
        class Masked(Text):
            def __getitem__(self, index):  # from no label to all; the first one is no target
                tokens = super().__getitem__(index)["input_ids"]
                return {"input_ids": tokens, "labels": torch.where(torch.arange(CONTEXT) < index % (CONTEXT + 1), tokens, -100)}

        trainer = self.trainer(train_dataset=Masked(), optim="sgd", learning_rate=0.5, per_device_train_batch_size=1, gradient_accumulation_steps=4)
        output = trainer.train()
        reference, total = model(), 0.0
        optimizer = torch.optim.SGD(reference.parameters(), lr=0.5)
        for step in range(PER_EPOCH):
            indices = sum((_native.samples(trainer.args.seed, SAMPLES, 4, 4, step, v) for v in range(4)), [])
            items = [Masked()[i] for i in indices]
            tokens, labels = (torch.stack([item[name] for item in items]) for name in ("input_ids", "labels"))
            loss = cross_entropy(reference(input_ids=tokens).logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(reference.parameters(), 1.0)
            for group in optimizer.param_groups:
                group["lr"] = 0.5 * (1 - step / PER_EPOCH)
            optimizer.step()
            total += loss.item() / PER_EPOCH
        self.assertAlmostEqual(output.training_loss, total, places=4)
        torch.testing.assert_close(self.weights(trainer), torch.cat([p.detach().flatten() for p in reference.parameters()]), rtol=1e-4, atol=1e-5)

    def test_arguments_with_another_meaning_are_named(self):
        fields = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
        self.assertLessEqual(set(subject._DIFFERENT), fields & (subject._HONOURED | subject._HARMLESS | set(subject._REFUSED)))
        with self.assertLogs("transformers.trainer", "WARNING") as caught:
            self.trainer(max_steps=1, average_tokens_across_devices=False).train()
        text = "\n".join(caught.output)
        self.assertIn("gradient_accumulation_steps=2: the micro-batches of all workers together, so a step has 2 x 2 samples", text)
        self.assertIn("average_tokens_across_devices=False: the loss is the mean over the labels of the step", text)
        self.assertNotIn("save_strategy", text)

    def test_the_last_step_of_an_epoch_may_be_dropped(self):
        trainer = self.trainer(train_dataset=torch.utils.data.Subset(Text(), range(10)), max_steps=-1, num_train_epochs=3, dataloader_drop_last=True)
        self.assertEqual(trainer.train().global_step, 6)

    def test_callbacks_that_wait_for_an_event_that_does_not_happen(self):
        for event in ("on_substep_end", "on_save"):
            kind = type("Waits", (TrainerCallback,), {event: lambda *_, **__: None})
            self.fails(f"Waits.{event} would not be called", self.trainer(callbacks=[kind()]).train)

    def test_what_a_callback_cannot_ask_for(self):
        for name in ("should_save", "should_epoch_stop"):
            class Asks(TrainerCallback):
                def on_step_end(self, arguments, state, control, **_):
                    setattr(control, name, state.global_step == 2)

            self.fails(f"a callback set control.{name}", self.trainer(callbacks=[Asks()]).train)


class Honoured(Of):
    def test_events_of_callbacks(self):
        seen = []

        class Sees(TrainerCallback):
            pass

        names = [name for name in vars(TrainerCallback) if name.startswith("on_") and name not in subject._NOT_FIRED]
        for name in names:
            setattr(Sees, name, lambda self, arguments, state, control, name=name, **_: seen.append(name))

        def norm(self, arguments, state, control, model, **_):
            gradients = [parameter.grad for parameter in model.parameters()]
            norms.append(torch.linalg.vector_norm(torch.cat([gradient.flatten() for gradient in gradients])).item())

        norms = []
        Sees.on_pre_optimizer_step = norm
        self.trainer(callbacks=[Sees()], eval_strategy="epoch", max_grad_norm=1e-3).train()
        self.assertEqual([name for name in names if name not in (*seen, "on_pre_optimizer_step", "on_predict", "on_push_begin")], [])
        self.assertEqual(seen.count("on_optimizer_step"), PER_EPOCH)
        self.assertEqual(len(norms), PER_EPOCH)
        for value in norms:  # after clipping
            self.assertAlmostEqual(value, 1e-3, delta=1e-5)

    def test_a_worker_that_gets_rank_0_later_shows_the_progress(self):
        trainer = self.trainer(disable_tqdm=False)
        (progress,) = (one for one in trainer.callback_handler.callbacks if isinstance(one, ProgressCallback))
        real = trainer.run._next_step

        def next_step():
            event = real()
            trainer.run.rank = 1 if event is not None and event.step < 2 else 0
            return event

        trainer.run._next_step = next_step
        trainer.train()
        self.assertEqual((progress.current_step, trainer.state.global_step), (PER_EPOCH, PER_EPOCH))

    def test_label_smoothing(self):
        losses = [self.trainer(label_smoothing_factor=factor, max_steps=1).train().training_loss for factor in (0.0, 0.5)]
        trainer = self.trainer()
        batch = transformers.default_data_collator([Text()[index] for index in range(SAMPLES)])
        self.assertAlmostEqual(losses[0], trainer.model(**batch).loss.item(), delta=0.2)
        self.assertGreater(abs(losses[0] - losses[1]), 1e-4)

    def test_checkpoints_alone(self):
        def saved(**named):
            trainer = self.trainer(max_steps=2 * PER_EPOCH, **named)
            trainer.train()
            folder = os.path.join(trainer.args.output_dir, "ringmaster")
            names = os.listdir(folder) if os.path.isdir(folder) else []
            return sorted(int(name.removeprefix("step-")) for name in names if name.startswith("step-"))

        self.assertEqual(saved(save_strategy="no"), [])
        self.assertEqual(saved(save_strategy="epoch"), [PER_EPOCH, 2 * PER_EPOCH])
        self.assertEqual(saved(save_strategy="steps", save_steps=5), [5, 10, 12])
        self.assertEqual(saved(save_strategy="steps", save_steps=0.25), [3, 6, 9, 12])  # a part of all steps
        self.assertEqual(saved(save_strategy="steps", save_steps=5, save_total_limit=1), [12])
        self.assertEqual(saved(save_strategy="steps", save_steps=5, ringmaster={"checkpoint_every": 7}), [7, 12])

    def test_activation_checkpointing_changes_no_bit(self):
        usual, checkpointed = self.trainer(), self.trainer(
            activation_checkpointing=True, activation_checkpointing_kwargs={"every_n_layers": 2}
        )  # fmt: skip
        for trainer in (usual, checkpointed):
            trainer.train()
        self.assertTrue(checkpointed.model.is_gradient_checkpointing)
        self.assertTrue(torch.equal(self.weights(usual), self.weights(checkpointed)))

    def test_an_evaluation_in_bfloat16_leaves_the_weights(self):
        usual, half = self.trainer(), self.trainer(bf16_full_eval=True, eval_strategy="steps", eval_steps=2)
        for trainer in (usual, half):
            trainer.train()
            self.assertFalse(trainer.is_in_train)
        self.assertEqual(half.model.dtype, torch.float32)
        self.assertTrue(torch.equal(self.weights(usual), self.weights(half)))

    def test_special_tokens_of_a_tokenizer_are_those_of_the_model(self):
        words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(WORDS)}, unk_token="w0"))
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w5", eos_token="w6")
        trainer = self.trainer(processing_class=tokenizer, max_steps=1)
        trainer.data_collator = transformers.default_data_collator
        trainer.train()
        self.assertEqual((trainer.model.config.pad_token_id, trainer.model.config.eos_token_id), (5, 6))


def loss_of_scores(outputs, labels, num_items_in_batch=None):
    """A loss whose bits depend on the type of the scores: autocast multiplies in the type that it gets."""
    scores = outputs.logits[:, :-1].flatten(0, 1)
    return cross_entropy(scores, labels[:, 1:].flatten()) + 0.1 * (scores * scores).mean()


class Precision(Of):
    """bf16 and fp16: what layers compute in, and that neither evaluations nor interruptions change a bit of the weights."""

    TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}

    class Scaled(Trainer):
        """With a scale that overflows in the first steps, and again whenever it has grown."""

        def _build_accelerator_args(self, **named):
            arguments = super()._build_accelerator_args(**named)
            arguments["kwargs_handlers"].append(GradScalerKwargs(init_scale=2.0**18, growth_interval=2))
            return arguments

    class Watch(TrainerCallback):
        def __init__(self):
            self.steps = []  # whose optimizer has stepped
            self.rates = []

        def on_optimizer_step(self, arguments, state, control, **_):
            self.steps.append(state.global_step)

        def on_step_end(self, arguments, state, control, lr_scheduler, **_):
            self.rates.append(lr_scheduler.get_last_lr()[0])

    def trained(self, **named):
        watch = self.Watch()
        trainer = self.trainer(self.Scaled, [watch], **{"compute_loss_func": loss_of_scores, "max_steps": 2 * PER_EPOCH, **named})
        trainer.train()
        return trainer, watch

    def test_layers_compute_in_it_and_weights_stay_float32(self):
        for name, expected in self.TYPES.items():
            with self.subTest(name):
                seen = {True: set(), False: set()}  # by whether the model trains
                outputs = {True: set(), False: set()}
                trainer = self.trainer(self.Scaled, max_steps=4, eval_strategy="steps", eval_steps=2, **{name: True})
                first = trainer.model.model.layers[0]
                first.mlp.register_forward_hook(lambda layer, _, output: seen[layer.training].add(output.dtype))
                real = trainer.compute_loss

                def compute_loss(model, inputs, return_outputs=False, **named):
                    loss, result = real(model, inputs, return_outputs=True, **named)
                    outputs[model.training].add(result.logits.dtype)
                    return (loss, result) if return_outputs else loss

                trainer.compute_loss = compute_loss
                trainer.train()
                self.assertEqual(seen, {True: {expected}, False: {expected}})
                self.assertEqual(outputs, {True: {torch.float32}, False: {torch.float32}})  # as with transformers.Trainer
                self.assertEqual({parameter.dtype for parameter in trainer.model.parameters()}, {torch.float32})

    def test_weights_are_near_those_of_float32(self):
        exact = self.trained(max_steps=PER_EPOCH, compute_loss_func=None)[0]
        scaled = GradScalerKwargs(init_scale=2.0**10)
        with mock.patch(f"{__name__}.GradScalerKwargs", lambda **_: scaled):  # one that skips no step
            for name in self.TYPES:
                trainer, watch = self.trained(max_steps=PER_EPOCH, compute_loss_func=None, **{name: True})
                self.assertEqual(watch.steps, list(range(PER_EPOCH)))
                difference = (self.weights(trainer) - self.weights(exact)).abs().max().item()
                self.assertTrue(0 < difference < 1e-3, difference)

    def test_evaluations_change_no_bit(self):
        """A worker that joins has evaluated less often than the others."""
        for name in self.TYPES:
            with self.subTest(name):
                plain = self.trained(**{name: True})[0]
                evaluated = self.trained(eval_on_start=True, eval_strategy="steps", eval_steps=5, **{name: True})[0]
                self.assertTrue(torch.equal(self.weights(plain), self.weights(evaluated)))

    def test_interruptions_change_no_bit(self):
        for name in self.TYPES:
            expected, watch = self.trained(**{name: True})
            for seed in range(3):
                with self.subTest(name, seed=seed), interruptions(seed) as counts:
                    trainer, other = self.trained(**{name: True})
                    self.assertTrue(torch.equal(self.weights(trainer), self.weights(expected)))
                    self.assertEqual((other.steps, other.rates), (watch.steps, watch.rates))
                    self.assertTrue(any(counts.values()))

    def test_a_step_that_overflows_changes_only_the_scale(self):
        trainer, watch = self.trained(fp16=True)
        skipped = sorted(set(range(2 * PER_EPOCH)) - set(watch.steps))
        self.assertEqual(skipped[0], 0)
        self.assertGreater(len(watch.steps), 2)
        self.assertTrue(any(step > watch.steps[0] for step in skipped), "the scale has grown too far")
        self.assertEqual(trainer.state.global_step, 2 * PER_EPOCH)
        rates = [trainer.args.learning_rate, *watch.rates]
        for step in range(2 * PER_EPOCH):  # the schedule counts updates
            self.assertEqual(rates[step] == rates[step + 1], step in skipped)

    def test_the_scale_is_in_checkpoints(self):
        whole, watch = self.trained(fp16=True)
        folder = self.folder()
        saved = dict(fp16=True, output_dir=folder, save_strategy="steps", save_steps=1)

        class Stops(TrainerCallback):
            def on_step_end(self, arguments, state, control, **_):
                if state.global_step == 5:
                    raise KeyboardInterrupt

        trainer = self.trainer(self.Scaled, [Stops()], compute_loss_func=loss_of_scores, max_steps=2 * PER_EPOCH, **saved)
        with self.assertRaises(KeyboardInterrupt):
            trainer.train()
        trainer.run.close()
        rest, other = self.trained(**saved)
        self.assertTrue(torch.equal(self.weights(rest), self.weights(whole)))
        self.assertEqual(other.steps, [step for step in watch.steps if step >= other.steps[0]])
        self.assertEqual(rest.accelerator.scaler.get_scale(), whole.accelerator.scaler.get_scale())
        self.assertLess(len(other.rates), 2 * PER_EPOCH, "it has continued")

    def test_a_run_that_continues_in_another_precision_is_refused(self):
        folder = self.folder()
        named = dict(output_dir=folder, save_strategy="steps", save_steps=1, max_steps=2)
        trainer, _ = self.trained(**named)
        trainer.run.close()
        with self.assertRaises(Failed) as caught:
            self.trained(fp16=True, **named)
        self.assertIn("the checkpoint is of another run: the overflow count of the GradScaler is missing", caught.exception.message)


class Ends(Of):
    def test_a_run_that_has_ended_ends_again_with_the_same_weights(self):
        folder = self.folder()

        class Stops(TrainerCallback):
            def on_step_end(self, arguments, state, control, **_):
                control.should_training_stop = state.global_step == stop_at

        for stop_at in (PER_EPOCH, 4):
            results = []
            for attempt in range(2):
                events = []
                watch = type("Watch", (Stops,), {
                    name: lambda self, *_, name=name, **__: events.append(name) for name in ("on_train_begin", "on_train_end", "on_step_begin")
                })  # fmt: skip
                trainer = self.trainer(
                    callbacks=[watch()], output_dir=f"{folder}/{stop_at}", save_strategy="steps", save_steps=3, disable_tqdm=False
                )
                output = trainer.train()
                results.append((output.global_step, output.training_loss, self.weights(trainer).tolist()))
                self.assertEqual(trainer.state.global_step, stop_at)
                self.assertEqual(events.count("on_step_begin"), stop_at if attempt == 0 else 0)
                self.assertEqual((events[0], events[-1]), ("on_train_begin", "on_train_end"))
                trainer.run.close()
            self.assertEqual(results[0], results[1])
            self.assertFalse(math.isnan(results[0][1]))

    def test_a_second_training(self):
        trainer = self.trainer(max_steps=1)
        trainer.train()
        self.fails("Trainer.train was called before", trainer.train)

    def test_a_search_or_a_checkpoint_of_transformers(self):
        self.fails("a search starts several runs", self.trainer().train, trial={"learning_rate": 1e-3})
        self.fails("the same command continues", self.trainer().train, resume_from_checkpoint="out/checkpoint-3")


class Signature(Case):
    def test_takes_the_arguments_of_transformers(self):
        mine = inspect.signature(Trainer.train).parameters
        self.assertEqual(list(mine), list(inspect.signature(transformers.Trainer.train).parameters))


if __name__ == "__main__":
    unittest.main()
