#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a language model with the Trainer of Hugging Face transformers. Two lines differ from a script without Ringmaster.

  pip install transformers accelerate
  python3 examples/pytorch/finetune.py                  one worker, a small Llama with random weights
  python3 examples/pytorch/finetune.py --model FOLDER   with the weights of a folder that save_pretrained wrote

To train it with several workers, name it in the command of examples/pytorch/job.yaml.
"""

import argparse
import sysconfig
from pathlib import Path

import torch
import transformers
from torch.utils.data import Dataset
from ringmaster.torch.transformers import Trainer  # instead of transformers.Trainer

CONTEXT = 64  # T: tokens of a sample


class Text(Dataset):
    """Bytes of the source code of Python's standard library as tokens: samples of shape (T)."""

    def __init__(self, first, end):
        text = b"".join(file.read_bytes() for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[first:end])
        self.samples = torch.frombuffer(bytearray(text), dtype=torch.uint8).unfold(0, CONTEXT, CONTEXT).long()

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return {"input_ids": self.samples[index], "labels": self.samples[index]}


def build(folder):
    if folder:
        return transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=176, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=CONTEXT, attn_implementation="eager",
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", metavar="FOLDER")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--patience", type=int, help="evaluations without progress after which training ends")
    parser.add_argument("--precision", choices=("bf16", "fp16"), help="in which layers compute; by default float32")
    parser.add_argument("--out", default="out/finetune")
    arguments = parser.parse_args()

    training = transformers.TrainingArguments(
        output_dir=arguments.out, max_steps=arguments.steps, learning_rate=arguments.learning_rate, warmup_steps=5, weight_decay=0.01,
        per_device_train_batch_size=4, gradient_accumulation_steps=8,  # 8 micro-batches per step, for any number of workers
        eval_strategy="steps", eval_steps=10, metric_for_best_model="loss", logging_steps=10, save_strategy="no", seed=1, report_to="none",
        bf16=arguments.precision == "bf16", fp16=arguments.precision == "fp16", use_cpu=not torch.cuda.is_available(),
    )  # fmt: skip
    transformers.set_seed(1)  # new weights are equal on all workers
    stop = [transformers.EarlyStoppingCallback(arguments.patience)] if arguments.patience else []
    trainer = Trainer(
        model=build(arguments.model), args=training, train_dataset=Text(0, 20), eval_dataset=Text(20, 21), callbacks=stop,
    )  # fmt: skip
    trainer.train()
    trainer.save_model()  # on rank 0


if __name__ == "__main__":
    main()
