#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters on a Llama model of Hugging Face, with transformers and peft: only the adapters are trained, summed and exchanged.

  pip install transformers peft
  python3 examples/pytorch/llama_lora.py                  one worker, a small model with random weights
  python3 examples/pytorch/llama_lora.py --model FOLDER   with the weights of a folder that save_pretrained wrote

To train it with several workers, name it in the command of examples/pytorch/job.yaml.
"""

import argparse
import sysconfig
from pathlib import Path

import peft
import torch
import transformers

import ringmaster.torch as rm

CONTEXT = 64  # T: tokens of a sample


def load(folder):
    """Returns a model that maps tokens (B, T) to the scores of the next one, (B, T, 256 or more)."""
    if folder:
        return transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=176, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=CONTEXT, attn_implementation="eager",
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def read():
    """Returns bytes of the source code of Python's standard library as tokens, int64 (N, T)."""
    text = b"".join(file.read_bytes() for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:20])
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).unfold(0, CONTEXT, CONTEXT).long()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", metavar="FOLDER")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save", metavar="FOLDER", help="write the adapters, for peft.PeftModel.from_pretrained")
    arguments = parser.parse_args()

    run = rm.init(micro_batches=8, samples_per_step=32, seed=1)
    adapters = peft.LoraConfig(
        r=8, lora_alpha=16, lora_dropout=0.05, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"],
        modules_to_save=None if arguments.model else ["lm_head"],  # adapters alone learn little on random weights
    )  # fmt: skip
    model = peft.get_peft_model(load(arguments.model), adapters)
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=5e-3, weight_decay=0.0)
    scheduler = transformers.get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=10, num_training_steps=arguments.steps)
    run.register(model=model, optimizer=optimizer, scheduler=scheduler)

    samples = read()
    for step in run.steps(arguments.steps):
        for tokens in step.micro_batches(samples):
            step.backward(model(input_ids=tokens, labels=tokens).loss)
        done = step.number + 1
        if step.commit(clip_norm=1.0) and run.rank == 0 and (done % 20 == 0 or done == arguments.steps):
            print(f"step {done}: loss {step.loss:.4f}", flush=True)

    if arguments.save and run.rank == 0:
        model.save_pretrained(arguments.save)


if __name__ == "__main__":
    main()
