# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on Fashion-MNIST with TensorFlow, by the cluster in TF_CONFIG.

  python3 train_tensorflow.py --data FOLDER --checkpoints FOLDER --steps N [--step-seconds S] [--strategy mirrored|ps] [--fail WHAT:RANK]

mirrored: MultiWorkerMirroredStrategy. Worker 0 saves a checkpoint after every step, and all continue from the newest one.
ps: ParameterServerStrategy. The chief hands out the steps, which workers do asynchronously; it saves and loads the parameters.
Workers and parameter servers serve until their agent stops them.
"""

import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np  # noqa: E402
import program  # noqa: E402
import tensorflow as tf  # noqa: E402

RATE = 0.1
CLUSTER = json.loads(os.environ["TF_CONFIG"])["cluster"]
TASK = json.loads(os.environ["TF_CONFIG"])["task"]
ROLE, INDEX = TASK["type"], int(TASK["index"])


class Network:
    """REQUIRES: created in the scope of a strategy, which decides where its variables are."""

    def __init__(self):
        self.first = tf.Variable(tf.random.stateless_normal((784, 64), (1, 1)) * 0.05)
        self.second = tf.Variable(tf.random.stateless_normal((64, 10), (1, 2)) * 0.1)
        self.step = tf.Variable(0, dtype=tf.int64)
        self.checkpoint = tf.train.Checkpoint(first=self.first, second=self.second, step=self.step)

    def gradients(self, pixels, labels):
        with tf.GradientTape() as tape:
            logits = tf.tanh(pixels @ self.first) @ self.second
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        return loss, tape.gradient(loss, [self.first, self.second])

    def resume(self, folder):
        """Returns the step of the newest checkpoint; 0: there is none."""
        newest = tf.train.latest_checkpoint(str(folder))
        if newest is None:
            return 0
        self.checkpoint.restore(newest).assert_consumed()
        done = int(self.step.numpy())
        program.say(resumed=done, role=ROLE, index=INDEX)
        return done

    def finish(self, wanted, world, pixels, labels):
        program.finish(wanted, world, program.accuracy(np, self.first.numpy(), self.second.numpy(), pixels, labels))


def mirrored(wanted):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    world = strategy.num_replicas_in_sync
    program.say(up=True, role=ROLE, index=INDEX, world=world)
    with strategy.scope():
        network = Network()
    done = network.resume(wanted.checkpoints / "0")
    # Every worker has to save; only what worker 0 saves counts.
    saver = tf.train.CheckpointManager(network.checkpoint, str(wanted.checkpoints / str(INDEX)), 2)
    pixels, labels = program.images(np, wanted.data)

    @tf.function
    def update(pixels, labels):
        def replica(pixels, labels):
            loss, gradients = network.gradients(pixels, labels)
            context = tf.distribute.get_replica_context()
            loss, *gradients = context.all_reduce(tf.distribute.ReduceOp.MEAN, [loss, *gradients])
            for variable, gradient in zip((network.first, network.second), gradients):
                variable.assign_sub(RATE * gradient)
            return loss
        return strategy.run(replica, args=(pixels, labels))

    for step in range(done + 1, wanted.steps + 1):
        mine = program.share(step, INDEX, world, len(labels))
        loss = float(update(tf.constant(pixels[mine]), tf.constant(labels[mine])))
        network.step.assign(step)
        saver.save(checkpoint_number=step)
        if INDEX == 0:
            program.say(step=step, loss=loss, world=world, total_steps=wanted.steps, samples=program.BATCH)
        program.fail_at(step, wanted, INDEX)
        time.sleep(wanted.step_seconds)
    if INDEX == 0:
        network.finish(wanted, world, pixels, labels)
    program.say(done=wanted.steps, role=ROLE, index=INDEX, world=world)


def serve(resolver):
    server = tf.distribute.Server(resolver.cluster_spec(), job_name=ROLE, task_index=INDEX, protocol="grpc", start=True)
    program.say(up=True, role=ROLE, index=INDEX)
    server.join()


def direct(resolver, wanted):
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    workers = len(CLUSTER["worker"])
    program.say(up=True, role=ROLE, index=INDEX, world=workers)
    with strategy.scope():
        network = Network()
    done = network.resume(wanted.checkpoints)
    saver = tf.train.CheckpointManager(network.checkpoint, str(wanted.checkpoints), 2)
    pixels, labels = program.images(np, wanted.data)

    @tf.function
    def update(pixels, labels):
        loss, gradients = network.gradients(pixels, labels)
        for variable, gradient in zip((network.first, network.second), gradients):
            variable.assign_sub(RATE * gradient)
        return loss

    step = done
    while step < wanted.steps:
        # One step for each worker at the same time: none waits for another one's gradients.
        steps = range(step + 1, min(step + workers, wanted.steps) + 1)
        parts = [program.share(number, 0, 1, len(labels)) for number in steps]
        losses = [coordinator.schedule(update, args=(tf.constant(pixels[part]), tf.constant(labels[part]))) for part in parts]
        coordinator.join()
        step = steps[-1]
        network.step.assign(step)
        saver.save(checkpoint_number=step)
        for number, loss in zip(steps, losses):
            program.say(step=number, loss=float(loss.fetch()), world=workers, total_steps=wanted.steps, samples=program.BATCH)
        program.fail_at(step, wanted, ROLE)
        time.sleep(wanted.step_seconds)
    network.finish(wanted, workers, pixels, labels)
    program.say(done=wanted.steps, role=ROLE, index=INDEX, world=workers)


def main():
    wanted = program.arguments(strategy=["mirrored", "ps"])
    program.fail_to_import(wanted, ROLE if ROLE != "worker" else INDEX)
    if wanted.strategy == "mirrored":
        return mirrored(wanted)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return direct(resolver, wanted) if ROLE == "chief" else serve(resolver)


main()
