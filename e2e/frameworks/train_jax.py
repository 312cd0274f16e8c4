# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on Fashion-MNIST with JAX, data parallel over the processes of the environment (JAX_*). Process 0 saves
a checkpoint after every step, and all of them continue from the newest one, with any number of processes.

  python3 train_jax.py --data FOLDER --checkpoints FOLDER --steps N [--step-seconds S] [--fail WHAT:RANK]
"""

import os
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import program
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

RATE = 0.1


def loss_of(weights, pixels, labels):
    hidden = jnp.tanh(pixels @ weights["first"])
    logs = jax.nn.log_softmax(hidden @ weights["second"])
    return -jnp.mean(jnp.take_along_axis(logs, labels[:, None], axis=1))


@jax.jit
def update(weights, pixels, labels):
    loss, gradients = jax.value_and_grad(loss_of)(weights, pixels, labels)
    return jax.tree.map(lambda weight, gradient: weight - RATE * gradient, weights, gradients), loss


def main():
    wanted = program.arguments()
    program.fail_to_import(wanted, int(os.environ["JAX_PROCESS_ID"]))
    jax.config.update("jax_platforms", "cpu")
    jax.distributed.initialize(coordinator_address=os.environ["JAX_COORDINATOR_ADDRESS"],
                               num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"]))
    rank, world = jax.process_index(), jax.process_count()
    program.say(up=True, rank=rank, world=world)

    keys = jax.random.split(jax.random.PRNGKey(1))
    weights = {"first": jax.random.normal(keys[0], (784, 64)) * 0.05, "second": jax.random.normal(keys[1], (64, 10)) * 0.1}
    saved = wanted.checkpoints / "weights.npz"
    done = 0
    if saved.exists():
        with np.load(saved) as stored:
            done = int(stored["step"])
            weights = {name: stored[name] for name in weights}
        program.say(resumed=done, rank=rank)

    devices = Mesh(np.array(jax.devices()), ("data",))
    everywhere, split = NamedSharding(devices, PartitionSpec()), NamedSharding(devices, PartitionSpec("data"))
    weights = jax.device_put(weights, everywhere)
    pixels, labels = program.images(np, wanted.data)
    for step in range(done + 1, wanted.steps + 1):
        mine = program.share(step, rank, world, len(labels))
        batch = [jax.make_array_from_process_local_data(split, part[mine]) for part in (pixels, labels)]
        weights, loss = update(weights, *batch)
        if rank == 0:
            program.replace(saved, lambda path, step=step: np.savez(path.open("wb"), step=step, **weights))
            program.say(step=step, loss=float(loss), world=world, total_steps=wanted.steps, samples=program.BATCH)
        program.fail_at(step, wanted, rank)
        if multihost_utils.reached_preemption_sync_point(step):  # after SIGTERM; the same step in all processes
            program.say(stopped=step, rank=rank)
            jax.distributed.shutdown()
            sys.exit(143)
        time.sleep(wanted.step_seconds)
    if rank == 0:
        first, second = (np.asarray(weights[name]) for name in ("first", "second"))
        program.finish(wanted, world, program.accuracy(np, first, second, pixels, labels))
    program.say(done=wanted.steps, rank=rank, world=world)
    jax.distributed.shutdown()


program.run(main)
