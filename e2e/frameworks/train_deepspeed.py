# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on Fashion-MNIST with DeepSpeed, over gloo. All ranks save their parts after every step, and continue from
the checkpoint that the file `latest` names.

  python3 train_deepspeed.py --data FOLDER --checkpoints FOLDER --steps N [--stage 1|2|3|pipeline] [--step-seconds S] [--fail WHAT:RANK]

1, 2, 3: ZeRO of that stage. A checkpoint of another number of ranks is converted to a universal one, which any number can load.
pipeline: each rank has a part of the layers.
"""

import os
import shutil
import signal
import subprocess
import sys
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import program  # noqa: E402

RANK = int(os.environ["RANK"])
WANTED = program.arguments(stage=["1", "2", "3", "pipeline"])
program.fail_to_import(WANTED, RANK)

import deepspeed  # noqa: E402
import deepspeed.comm as dist  # noqa: E402
import numpy  # noqa: E402
import torch  # noqa: E402
from deepspeed.pipe import PipelineModule  # noqa: E402
from deepspeed.utils import logger  # noqa: E402
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint  # noqa: E402
from torch import nn  # noqa: E402

MICRO_BATCHES = 4  # of each step of a pipeline
PIPELINE = WANTED.stage == "pipeline"


def layers():
    return [nn.Sequential(nn.Linear(784, 128), nn.ReLU()), nn.Sequential(nn.Linear(128, 64), nn.ReLU()), nn.Linear(64, 10)]


def settings(world):
    batch = {"train_micro_batch_size_per_gpu": program.BATCH // MICRO_BATCHES, "gradient_accumulation_steps": MICRO_BATCHES} if PIPELINE \
        else {"train_micro_batch_size_per_gpu": program.BATCH // world}
    return {**batch, "steps_per_print": WANTED.steps + 1, "optimizer": {"type": "Adam", "params": {"lr": 0.002, "torch_adam": True}},
            "zero_optimization": {"stage": 0 if PIPELINE else int(WANTED.stage)}}


class Checkpoints:
    """The folder WANTED.checkpoints. `latest` always names a whole checkpoint: it is replaced when all ranks have saved."""

    def __init__(self):
        self.folder = WANTED.checkpoints
        self.latest = self.folder / "latest"
        self.tag = self.latest.read_text() if self.latest.exists() else None

    def prepare(self, world):
        """Removes what an interrupted save has left. Returns settings for what is loaded."""
        other_size = self.tag and not PIPELINE and len(list((self.folder / self.tag).glob("*_optim_states.pt"))) != world
        if RANK == 0:
            self.remove_others()
            if other_size:
                subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder", self.folder / self.tag,
                                "--output_folder", self.folder / "universal", "--inject_missing_state",
                                "--num_extract_workers", "1", "--num_merge_workers", "1"], check=True)
        dist.barrier()
        return {"checkpoint": {"load_universal": True}} if other_size else {}

    def load(self, engine):
        """Returns the step of the newest checkpoint; 0: there is none."""
        if self.tag is None:
            return 0
        path, state = engine.load_checkpoint(str(self.folder))
        assert path is not None, f"{self.folder} has no checkpoint {self.tag}"
        program.say(resumed=state["step"], rank=RANK, world=dist.get_world_size())
        return state["step"]

    def save(self, engine, step):
        self.tag = f"global_step{step}"
        engine.save_checkpoint(str(self.folder), tag=self.tag, client_state={"step": step}, save_latest=False)
        if RANK == 0:
            program.replace(self.latest, lambda path: path.write_text(self.tag))
            self.remove_others()

    def remove_others(self):
        for path in [*self.folder.glob("global_step*"), self.folder / "universal"]:
            if path.name != self.tag:
                shutil.rmtree(path, ignore_errors=True)

    def network(self):
        """Returns the network of the newest checkpoint."""
        plain = nn.Sequential(*layers())
        if PIPELINE:
            for number, layer in enumerate(plain):
                layer.load_state_dict(torch.load(self.folder / self.tag / f"layer_{number:02d}-model_states.pt"))
        else:
            plain.load_state_dict(get_fp32_state_dict_from_zero_checkpoint(str(self.folder), tag=self.tag))
        return plain


def parts(batch):
    """Returns the micro-batches of a pipeline."""
    return iter(list(zip(*(part.chunk(MICRO_BATCHES) for part in batch))))


def main():
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    logger.setLevel("WARNING")
    deepspeed.init_distributed("gloo")
    world = dist.get_world_size()
    program.say(up=True, rank=RANK, world=world)
    torch.manual_seed(1)
    checkpoints = Checkpoints()
    extra = checkpoints.prepare(world)
    loss_of = nn.CrossEntropyLoss()
    model = PipelineModule(layers(), num_stages=world, loss_fn=loss_of) if PIPELINE else nn.Sequential(*layers())
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={**settings(world), **extra})
    step = checkpoints.load(engine)
    pixels, labels = map(torch.from_numpy, program.images(numpy, WANTED.data))
    labels = labels.long()
    while step < WANTED.steps:
        step += 1
        mine = program.share(step, *((0, 1) if PIPELINE else (RANK, world)), len(labels))
        batch = pixels[mine], labels[mine]
        if PIPELINE:
            loss = engine.train_batch(parts(batch))
        else:
            loss = loss_of(engine(batch[0]), batch[1])
            engine.backward(loss)
            engine.step()
        seen = torch.tensor([loss.item() / world, float(len(stop))])
        dist.all_reduce(seen)  # all ranks stop after the same step
        mean, ending = seen.tolist()
        checkpoints.save(engine, step)
        if RANK == 0:
            program.say(step=step, loss=round(mean, 5), world=world, total_steps=WANTED.steps, samples=program.BATCH)
        program.fail_at(step, WANTED, RANK)
        if ending:
            dist.barrier()
            program.say(stopped=step, rank=RANK)
            sys.exit(143)
        time.sleep(WANTED.step_seconds)
    if RANK == 0:
        with torch.no_grad():
            program.finish(WANTED, world, (checkpoints.network()(pixels).argmax(1) == labels).float().mean().item())
    program.say(done=step, rank=RANK, world=world)
    dist.barrier()
    dist.destroy_process_group()


main()
