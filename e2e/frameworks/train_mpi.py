# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on Fashion-MNIST with MPI: the gradients go around a ring of all ranks, as a user of mpi4py would write it.
Rank 0 saves a checkpoint after every step, and all continue from the newest one.

  mpirun python3 train_mpi.py --data FOLDER --checkpoints FOLDER --steps N [--step-seconds S] [--fail WHAT:RANK]
"""

import os
import time

import numpy as np
import program

RATE = 0.1
HIDDEN = 64


def ring_sum(world, values):
    """Adds up `values`, float32 [n], of all ranks in place, with the same bits in each."""
    rank, size = world.Get_rank(), world.Get_size()
    successor, predecessor = (rank + 1) % size, (rank - 1) % size
    parts = np.array_split(values, size)
    for turn in range(size - 1):  # each rank ends with the sum of one part
        target = parts[(rank - turn - 1) % size]
        received = np.empty_like(target)
        world.Sendrecv(parts[(rank - turn) % size], successor, recvbuf=received, source=predecessor)
        target += received
    for turn in range(size - 1):
        world.Sendrecv(parts[(rank - turn + 1) % size], successor, recvbuf=parts[(rank - turn) % size], source=predecessor)


def gradient(first, second, pixels, labels):
    """Returns the loss, summed over the samples, and its gradients."""
    hidden = np.tanh(pixels @ first)
    logits = hidden @ second
    logits -= logits.max(1, keepdims=True)
    odds = np.exp(logits)
    odds /= odds.sum(1, keepdims=True)
    own = np.arange(len(labels))
    loss = -np.log(odds[own, labels]).sum()
    odds[own, labels] -= 1
    return loss, pixels.T @ ((odds @ second.T) * (1 - hidden**2)), hidden.T @ odds


def main():
    wanted = program.arguments()
    program.fail_to_import(wanted, int(os.environ["RINGMASTER_RANK"]))
    from mpi4py import MPI  # connects to the other ranks

    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    program.say(up=True, rank=rank, world=size, pod=os.environ["RINGMASTER_POD"], library=MPI.Get_library_version().split(",")[0][:40])
    check = np.arange(1000, dtype=np.float32) * (rank + 1)
    ring_sum(world, check)
    whole = np.empty_like(check)
    world.Allreduce(np.arange(1000, dtype=np.float32) * (rank + 1), whole)
    assert (check == whole).all(), "the ring and MPI_Allreduce differ"

    draw = np.random.default_rng(1)
    weights = np.concatenate([draw.normal(0, 0.05, 784 * HIDDEN), draw.normal(0, 0.1, HIDDEN * 10)]).astype(np.float32)
    saved, done = wanted.checkpoints / "weights.npz", 0
    if rank == 0 and saved.exists():
        with np.load(saved) as stored:
            weights, done = stored["weights"], int(stored["step"])
    world.Bcast(weights)
    done = world.bcast(done)
    if done:
        program.say(resumed=done, rank=rank)
    pixels, labels = program.images(np, wanted.data)
    for step in range(done + 1, wanted.steps + 1):
        first, second = weights[:784 * HIDDEN].reshape(784, HIDDEN), weights[784 * HIDDEN:].reshape(HIDDEN, 10)
        mine = program.share(step, rank, size, len(labels))
        loss, *gradients = gradient(first, second, pixels[mine], labels[mine])
        total = np.concatenate([*(part.ravel() for part in gradients), [loss]]).astype(np.float32)
        ring_sum(world, total)
        count = program.BATCH // size * size
        weights = weights - RATE * total[:-1] / np.float32(count)
        if rank == 0:
            # A step that is saved is not done again, so it is reported before.
            program.say(step=step, loss=round(float(total[-1]) / count, 5), world=size, total_steps=wanted.steps, samples=count)
            program.replace(saved, lambda path, step=step: np.savez(path.open("wb"), step=step, weights=weights))
        program.fail_at(step, wanted, rank)
        time.sleep(wanted.step_seconds)
    if rank == 0:
        first, second = weights[:784 * HIDDEN].reshape(784, HIDDEN), weights[784 * HIDDEN:].reshape(HIDDEN, 10)
        program.finish(wanted, size, program.accuracy(np, first, second, pixels, labels))
    program.say(done=wanted.steps, rank=rank, world=size)


program.run(main)
