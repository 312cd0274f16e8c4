# SPDX-License-Identifier: Apache-2.0
"""DataLoaders that step.micro_batches takes apart, and evaluations that run.evaluate divides."""

import fractions
import random
import unittest
import unittest.mock

from training import Case, interruptions

import torch
import torch.utils.data
from torch.utils.data import DataLoader

import ringmaster.torch as rm
from ringmaster.torch import _evaluation, _loaders

SIZE = 22  # samples; the last step of an epoch has 6 of 8
X = torch.arange(SIZE * 3.0).reshape(SIZE, 3)


class Numbers(torch.utils.data.Dataset):
    """Of each sample its number and a random one."""

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        return index, random.random()


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(20))


class Odd(torch.utils.data.Sampler):
    """Yields some samples, by a separate generator, and first the number of the epoch."""

    def __init__(self):
        self.generator, self.epoch = random.Random(1), 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 10

    def __iter__(self):
        return iter([self.epoch, *(self.generator.randrange(SIZE) for _ in range(9))])


class Buckets(torch.utils.data.BatchSampler):
    pass


def start(**settings):
    run = rm.init(**{"micro_batches": 4, "samples_per_step": 8, "seed": 3, **settings})
    model = torch.nn.Linear(1, 1)
    run.register(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    return run, model


def taken(loader, steps=6, interrupted=0, **settings):
    """Returns the samples of each micro-batch of a run that trains nothing of interest, and what its code draws."""
    run, model = start(**settings)
    seen = {}
    with interruptions(interrupted, 0.2 if interrupted else 0):
        for step in run.steps(steps):
            for batch in step.micro_batches(loader):
                found = (*(part.tolist() for part in batch), float(torch.rand(1)))
                assert seen.setdefault((step.number, step.micro_batch), found) == found
                step.backward(model(torch.ones(1, 1)).sum())
            step.commit()
    run.close()
    return seen


def samples(seen):
    return [index for _, batch in sorted(seen.items()) for index in batch[0]]


class Loaders(Case):
    def test_a_shuffled_one_is_its_dataset(self):
        for options in ({"batch_size": 2}, {"batch_size": 8}, {"batch_size": 2, "num_workers": 2}):
            loader = DataLoader(Numbers(), shuffle=True, **options)
            self.assertEqual(taken(loader), taken(_With(Numbers())), options)

    def test_the_order_of_a_sequential_one_is_kept(self):
        for workers in (0, 2):
            seen = taken(DataLoader(Numbers(), batch_size=2, num_workers=workers))
            self.assertEqual(samples(seen), [*range(SIZE), *range(SIZE)])

    def test_a_sampler_is_honoured_and_drawn_from_seed_and_epoch(self):
        weights = [0.0] * 10 + [1.0] * 12
        for sampler in (
            torch.utils.data.WeightedRandomSampler(weights, 20),
            torch.utils.data.WeightedRandomSampler(weights, 20, generator=torch.Generator().manual_seed(1)),
            torch.utils.data.SubsetRandomSampler(range(10, 20)),
            torch.utils.data.RandomSampler(Numbers(), replacement=True, num_samples=20),
            Odd(),
        ):
            with self.subTest(type(sampler).__name__):
                expected = taken(DataLoader(Numbers(), batch_size=2, sampler=sampler))
                found = samples(expected)
                epochs = [found[i : i + len(sampler)] for i in range(0, len(found), len(sampler))]
                self.assertNotEqual(epochs[0], epochs[1])
                if isinstance(sampler, torch.utils.data.WeightedRandomSampler):
                    self.assertGreaterEqual(min(found), 10)
                if isinstance(sampler, torch.utils.data.SubsetRandomSampler):
                    self.assertEqual(sorted(epochs[0]), list(range(10, 20)))
                if isinstance(sampler, Odd):
                    self.assertEqual([epoch[0] for epoch in epochs], list(range(len(epochs))))
                for workers, seed in ((0, 1), (2, 0), (2, 2)):
                    again = taken(DataLoader(Numbers(), batch_size=2, sampler=sampler, num_workers=workers), interrupted=seed)
                    self.assertEqual(again, expected, (workers, seed))
                self.assertNotEqual(samples(taken(DataLoader(Numbers(), batch_size=2, sampler=sampler), seed=4)), found)

    def test_workers_with_other_orders_are_noticed(self):
        run, model = start()
        sources = [
            run._cached_source(DataLoader(Numbers(), batch_size=2, sampler=torch.utils.data.SubsetRandomSampler(part)), None, 0)
            for part in (range(10), range(1, 11))
        ]
        self.assertNotEqual(*(run._stamp(source, 0) for source in sources))
        run.close()

    def test_an_order_is_hashed_once_per_epoch(self):
        run, _ = start()
        order = run._cached_source(DataLoader(Numbers(), batch_size=2, sampler=Odd()), None, 0).order
        first = [order.stamp(epoch) for epoch in range(3)]
        self.assertEqual(len(set(first)), 3)
        with unittest.mock.patch.object(_loaders._native, "hash_bytes") as hashed:
            self.assertEqual([order.stamp(epoch) for epoch in (1, 2, 1)], [first[1], first[2], first[1]])
        hashed.assert_not_called()
        self.assertEqual(order.stamp(0), first[0], "it is drawn again")
        run.close()

    def test_a_stream_and_its_collate_function(self):
        loader = DataLoader(Stream(), batch_size=2, collate_fn=lambda rows: (torch.tensor(rows) + 100,))
        self.assertEqual(samples(taken(loader, 2)), list(range(100, 116)))

    def test_what_cannot_be_honoured_is_refused_by_name(self):
        def loader(**options):
            return DataLoader(Numbers(), **{"batch_size": 2, **options})

        for wrong, text in (
            (loader(batch_size=None), "it has batch_size=None"),
            (loader(batch_size=3), "batches of 3, and a micro-batch has 2 samples"),
            (loader(drop_last=True), "rm.init(..., drop_last=True)"),
            (loader(worker_init_fn=print), "worker_init_fn would not be called"),
            (loader(sampler=torch.utils.data.DistributedSampler(Numbers(), 2, 0)), "DistributedSampler leaves samples"),
            (loader(sampler=iter(range(4))), "has no length"),
            (DataLoader(Numbers(), batch_sampler=Buckets(range(SIZE), 2, False)), "its batch_sampler, a Buckets"),
            (loader(sampler=[1, 2, SIZE, 3]), "yields samples that the dataset, of 22, does not have"),
        ):
            with self.subTest(text):
                self.fails(text, taken, wrong)
        self.assertEqual(len(samples(taken(loader(drop_last=True, shuffle=True), 2, drop_last=True))), 16)


class Foreign(Case):
    """Objects of Accelerate and Lightning, by stand-ins: Python finds the package by the module of the class."""

    def wrapper(self, module, base):
        return type("Wrapper", (base,), {"__module__": module})

    def test_wrappers_are_refused_by_the_name_of_their_package(self):
        model = torch.nn.Linear(1, 1)
        for module, base, arguments, package in (
            ("accelerate.optimizer", torch.optim.SGD, (model.parameters(),), "accelerator.prepare"),
            ("lightning.fabric.wrappers", torch.nn.Linear, (1, 1), "fabric.setup"),
            ("lightning_fabric.wrappers", torch.nn.Linear, (1, 1), "Lightning Fabric"),
        ):
            run = rm.init(micro_batches=4, samples_per_step=8, seed=3)
            wrapped = self.wrapper(module, base)(*arguments)
            self.fails("run.register(thing=...): this Wrapper is a wrapper of ", run.register, thing=wrapped)
            self.fails(package, run.register, thing=wrapped)
            run.close()
        loader = self.wrapper("accelerate.data_loader", DataLoader)(Numbers(), batch_size=2)
        self.fails("step.micro_batches(...): this Wrapper is a wrapper of Accelerate", taken, loader)
        run, _ = start()
        self.fails("run.evaluate(...): this Wrapper is a wrapper of Accelerate", run.evaluate, loader)
        run.close()

    def test_a_module_of_the_users_with_a_base_of_lightning_is_taken(self):
        lightning_module = self.wrapper("lightning.pytorch.core.module", torch.nn.Linear)
        run = rm.init(micro_batches=4, samples_per_step=8, seed=3)
        run.register(model=type("Mine", (lightning_module,), {})(1, 1))
        run.close()

    def test_a_process_group_of_several_processes_is_refused(self):
        run, _ = start()
        distributed = torch.distributed
        with unittest.mock.patch.object(distributed, "is_initialized", lambda: True), \
                unittest.mock.patch.object(distributed, "get_backend", lambda: "gloo"):
            with unittest.mock.patch.object(distributed, "get_world_size", lambda: 2):
                self.fails("a process group of 2 processes (gloo)", lambda: next(iter(run.steps(1))))
        run.close()


class _With(torch.utils.data.Dataset):
    """The same dataset with the collate function of a DataLoader."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        return self.dataset[index]


class Evaluations(Case):
    def evaluate(self, rank, world, dataset=X, **options):
        """Returns the evaluation of one of several workers, which has seen its batches, and what its code drew."""
        run, _ = start()
        generator = run.rng("python")
        run._find_generators()
        run.rank, run.world, run._in_loop = rank, world, True
        run._step = unittest.mock.Mock(number=7, _iterated=False, _committed=False, _interrupted=False)
        evaluation = run.evaluate(dataset, **{"batch_size": 3, **options})
        drawn = []
        for batch in evaluation:
            x = batch[0] if isinstance(batch, (list, tuple)) else batch
            drawn.append((evaluation._batch, x.tolist(), float(torch.rand(1)), generator.random()))
            evaluation.add(loss=x.double().mean() * 0.1, count=len(x))
            evaluation.collect({"rows": x, "name": "batch"})
        run.close()
        return evaluation, drawn, (float(torch.rand(1)), generator.random())

    def results(self, world, **options):
        """Returns what the workers get, and what they drew. Their exchanges are played: each gets what all have given."""
        workers = [self.evaluate(rank, world, **options) for rank in range(world)]
        results = []
        for ask in (_evaluation.Evaluation.sums, _evaluation.Evaluation.collected):
            given = [[] for _ in workers]  # by worker: what it gives in each exchange
            while True:
                rounds = len(given[0])
                answers = []
                for (evaluation, _, _), mine in zip(workers, given):
                    calls = iter(range(rounds + 1))

                    def gather(data, mine=mine, calls=calls, rounds=rounds):
                        call = next(calls)
                        if call == rounds:
                            mine.append(data)
                            return None
                        return [other[call] for other in given]

                    evaluation._gather = gather
                    answers.append(ask(evaluation))
                if all(answer is not None for answer in answers):
                    break
            results.append(answers)
        return results, sorted(d for _, drawn, _ in workers for d in drawn), {after for _, _, after in workers}

    def test_results_are_exact_and_equal_for_any_number_of_workers(self):
        for dataset in (X, torch.utils.data.TensorDataset(X), DataLoader(Numbers(), batch_size=3), DataLoader(Numbers(), batch_size=3, num_workers=2)):
            (sums, collected), drawn, after = self.results(1, dataset=dataset)
            self.assertEqual(sums[0]["count"], SIZE)
            self.assertEqual(len(collected[0]), 8)
            for world in (2, 3, 9):  # more than batches
                (again, rows), others, end = self.results(world, dataset=dataset)
                self.assertEqual(again, sums * world)
                self.assertEqual([[str(row) for row in of] for of in rows], [[str(row) for row in collected[0]]] * world)
                self.assertEqual((others, end), (drawn, after))

    def test_what_the_loop_draws_does_not_depend_on_the_processes_that_read(self):
        alone = self.evaluate(0, 1, DataLoader(Numbers(), batch_size=3))[1:]
        self.assertEqual(self.evaluate(0, 1, DataLoader(Numbers(), batch_size=3, num_workers=2))[1:], alone)

    def test_a_generator_that_is_state_stays_as_it_is(self):
        class Noisy(Numbers):
            def __init__(self, generator):
                self.generator = generator

            def __getitem__(self, index):
                return index

        run, _ = start()
        generator = torch.Generator().manual_seed(1)
        run.register(generator=generator)
        before = generator.get_state()
        self.assertEqual(len(list(run.evaluate(Noisy(generator), batch_size=4))), 6)
        self.assertTrue(torch.equal(generator.get_state(), before))
        run.close()

    def test_a_loader_that_does_not_read_each_sample_once_is_refused_by_name(self):
        def loader(**options):
            return DataLoader(Numbers(), **{"batch_size": 4, **options})

        run, _ = start()
        for wrong, text in (
            (loader(sampler=torch.utils.data.SubsetRandomSampler(range(10))), "its sampler, a SubsetRandomSampler, would be ignored"),
            (loader(sampler=torch.utils.data.RandomSampler(Numbers(), replacement=True)), "its sampler, a RandomSampler"),
            (loader(sampler=torch.utils.data.RandomSampler(Numbers(), num_samples=9)), "its sampler, a RandomSampler"),
            (loader(sampler=torch.utils.data.DistributedSampler(Numbers(), 2, 0)), "its sampler, a DistributedSampler"),
            (loader(sampler=torch.utils.data.SequentialSampler(range(9))), "its sampler, a SequentialSampler"),
            (loader(drop_last=True), "its drop_last=True"),
            (loader(worker_init_fn=print), "its worker_init_fn would not be called"),
        ):
            with self.subTest(text):
                self.fails(text, run.evaluate, wrong)
        self.fails("torch.utils.data.Subset(dataset, indices)", run.evaluate, loader(drop_last=True))
        self.fails("is a stream", run.evaluate, DataLoader(Stream(), batch_size=2))
        for right in (loader(), loader(shuffle=True)):
            self.assertEqual(len(list(run.evaluate(right))), 6)
        run.close()

    def test_large_values_are_exchanged_in_parts(self):
        (_, collected), _, _ = self.results(2, dataset=torch.arange(100_000.0).reshape(2, -1), batch_size=1)
        self.assertTrue(torch.equal(torch.cat([part["rows"] for part in collected[1]]), torch.arange(100_000.0).reshape(2, -1)))

    def test_a_sum_does_not_depend_on_the_order(self):
        values = [1e300, 1.0, -1e300, 2**-60, True, 3]
        expected = float(sum(map(fractions.Fraction, values)))
        for seed in range(10):
            random.Random(seed).shuffle(values)
            parts = [_evaluation.Sum(), _evaluation.Sum()]
            for i, value in enumerate(values):
                parts[i % 2].add(torch.tensor(value, dtype=torch.float64) if isinstance(value, float) else value)
            total = _evaluation.Sum.decode(parts[0].encode())
            total.join(parts[1])
            self.assertEqual(total.value(), expected)
        self.assertEqual(str([self.total(1, 2), self.total(1.0), self.total(float("inf"), 1), self.total(float("inf"), -float("inf"))]), "[3, 1.0, inf, nan]")

    def total(self, *values):
        total = _evaluation.Sum()
        for value in values:
            total.add(value)
        return total.value()

    def test_in_a_run(self):
        run, model = start()
        outside = run.evaluate(X, batch_size=4)
        for x in outside:
            outside.add(count=len(x))
        self.assertEqual(outside.sums(), {"count": SIZE})
        counts, interrupted = [], False
        with interruptions(5, 0.2):
            for step in run.steps(6):
                evaluation = run.evaluate(X, batch_size=4)
                for x in evaluation:
                    evaluation.add(count=len(x))
                counts.append(evaluation.sums())
                if step.number == 3 and not interrupted:
                    interrupted = True
                    with unittest.mock.patch.object(run._native, "gather", return_value=None):
                        again = run.evaluate(X, batch_size=4)
                        self.assertEqual(len(list(again)), 6)
                        self.assertIsNone(again.sums())
                for x in step.micro_batches(X):
                    step.backward(model(x[:, :1]).sum())
                step.commit()
        self.assertEqual(counts, [{"count": SIZE}] * len(counts))
        self.assertGreaterEqual(len(counts), 8)
        run.close()

    def test_mistakes(self):
        run, model = start()
        self.fails("a batch has at least one sample", run.evaluate, X)
        self.fails("is a stream", run.evaluate, Stream(), batch_size=1)
        evaluation = run.evaluate(X, batch_size=4)
        self.fails("outside of the loop", evaluation.add, loss=1)
        self.fails("let it run to its end", evaluation.sums)
        for step in run.steps(1):
            for x in step.micro_batches(X):
                self.fails("at the top of a step", run.evaluate, X, batch_size=4)
                step.backward(model(x[:, :1]).sum())
            step.commit()
        run.close()


if __name__ == "__main__":
    unittest.main()
