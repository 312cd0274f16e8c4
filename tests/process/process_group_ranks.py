# SPDX-License-Identifier: Apache-2.0
"""One rank of the test torch_process_group: process_group_ranks.py PART BACKEND, with the environment of torchrun.

A part prints what the test compares, and ends with code 0 if all is as expected.
"""

import datetime
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

import ringmaster.torch.process_group  # noqa: F401  (registers the backend)

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
SIZES = (1, 5, 1000, 40_009)  # few bytes, not a multiple of the world, more than is gathered at once
LARGE = 2_000_003  # more than a piece
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
Op = dist.ReduceOp


def data(rank, size, dtype, salt=0):
    generator = torch.Generator().manual_seed(rank * 1000 + salt)
    if dtype.is_floating_point:
        return (torch.randn(size, generator=generator, dtype=torch.float64) / 2).to(dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, (size,), generator=generator).to(dtype)
    return torch.randint(1, 5, (size,), generator=generator).to(dtype)


def everyone(size, dtype):
    return [data(rank, size, dtype) for rank in range(WORLD)]


def reduced(terms, op):
    """The reduction in the order of ranks: of 16-bit floats as floats."""
    dtype = terms[0].dtype
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    result = terms[0].to(wide)
    for term in terms[1:]:
        term = term.to(wide)
        if dtype == torch.bool:
            result = result ^ term if op == Op.BXOR else result & term if op in (Op.PRODUCT, Op.MIN, Op.BAND) else result | term
        elif op in (Op.SUM, Op.AVG):
            result = result + term
        elif op == Op.PRODUCT:
            result = result * term
        elif op in (Op.MIN, Op.MAX):
            result = torch.minimum(result, term) if op == Op.MIN else torch.maximum(result, term)
        else:
            result = result & term if op == Op.BAND else result | term if op == Op.BOR else result ^ term
    return (result / len(terms) if op == Op.AVG else result).to(dtype)


def expect(got, wanted, *what):
    exact = not got.dtype.is_floating_point
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, (what, got.dtype, got.shape, wanted.shape)
    close = torch.equal(got, wanted) if exact else torch.allclose(got, wanted, rtol=1e-5 if got.dtype == torch.float32 else 0, atol=1e-6)
    assert close, (RANK, what, (got != wanted).nonzero()[:5], got[got != wanted][:5], wanted[got != wanted][:5])


def reduce_all_ways(dtype, op, size):
    wanted = reduced(everyone(size, dtype), op)
    tensor = data(RANK, size, dtype)
    dist.all_reduce(tensor, op)
    expect(tensor, wanted, "all_reduce", dtype, op, size)
    root = size % WORLD
    tensor = data(RANK, size, dtype)
    dist.reduce(tensor, root, op)
    expect(tensor, wanted if RANK == root else data(RANK, size, dtype), "reduce", dtype, op, size)
    shares = [reduced([data(rank, size, dtype, share) for rank in range(WORLD)], op) for share in range(WORLD)]
    own = [data(RANK, size, dtype, share) for share in range(WORLD)]
    output = torch.empty(size, dtype=dtype)
    dist.reduce_scatter_tensor(output, torch.cat(own), op)
    expect(output, shares[RANK], "reduce_scatter_tensor", dtype, op, size)
    output = torch.empty(size, dtype=dtype)
    dist.reduce_scatter(output, own, op)
    expect(output, shares[RANK], "reduce_scatter", dtype, op, size)


def reductions():
    both = (Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX)
    combinations = [(dtype, op) for dtype in FLOATS for op in (*both, Op.AVG)]
    combinations += [(dtype, op) for dtype in (*INTEGERS, torch.bool) for op in (*both, Op.BAND, Op.BOR, Op.BXOR)]
    for dtype, op in combinations:
        for size in SIZES:
            reduce_all_ways(dtype, op, size)
    for dtype, op in ((torch.float32, Op.SUM), (torch.float64, Op.SUM), (torch.bfloat16, Op.AVG)):
        reduce_all_ways(dtype, op, LARGE)
    print(len(combinations), "reductions", flush=True)


def movements():
    for dtype in (*FLOATS, *INTEGERS, torch.bool, torch.complex64):
        for size in (*SIZES, LARGE) if dtype == torch.float32 else SIZES:
            kind = torch.float32 if dtype == torch.complex64 else dtype
            terms = [term.to(dtype) for term in everyone(size, kind)]
            root = size % WORLD
            tensor = terms[RANK].clone()
            dist.broadcast(tensor, root)
            assert torch.equal(tensor, terms[root]), ("broadcast", dtype, size)
            outputs = [torch.empty_like(tensor) for _ in range(WORLD)]
            dist.all_gather(outputs, terms[RANK])
            assert all(map(torch.equal, outputs, terms)), ("all_gather", dtype, size)
            output = torch.empty(WORLD * size, dtype=dtype)
            dist.all_gather_into_tensor(output, terms[RANK])
            assert torch.equal(output, torch.cat(terms)), ("all_gather_into_tensor", dtype, size)
            outputs = [torch.empty_like(tensor) for _ in range(WORLD)] if root == RANK else None
            dist.gather(terms[RANK], outputs, root)
            assert outputs is None or all(map(torch.equal, outputs, terms)), ("gather", dtype, size)
            output = torch.empty_like(tensor)
            dist.scatter(output, terms if root == RANK else None, root)
            assert torch.equal(output, terms[RANK]), ("scatter", dtype, size)
            output = torch.empty(WORLD * size, dtype=dtype)
            dist.all_to_all_single(output, torch.cat([terms[RANK].roll(peer) for peer in range(WORLD)]))
            assert torch.equal(output, torch.cat([term.roll(RANK) for term in terms])), ("all_to_all", dtype, size)


def uneven():
    # Rank r sends r + p + 1 rows to rank p.
    sent = [torch.full((RANK + peer + 1, 3), RANK * 10.0 + peer) for peer in range(WORLD)]
    wanted = [torch.full((RANK + peer + 1, 3), peer * 10.0 + RANK) for peer in range(WORLD)]
    sizes = [len(part) for part in sent]
    output = torch.empty(sum(sizes), 3)
    dist.all_to_all_single(output, torch.cat(sent), sizes, sizes)
    assert torch.equal(output, torch.cat(wanted))
    outputs = [torch.empty_like(part) for part in wanted]
    dist.all_to_all(outputs, sent)
    assert all(map(torch.equal, outputs, wanted))

    matrix = torch.arange(12.0).view(3, 4).t()  # not contiguous
    tensor = matrix * (RANK + 1)
    assert not tensor.is_contiguous()
    dist.all_reduce(tensor)
    assert torch.equal(tensor, matrix * sum(range(1, WORLD + 1)))

    gathered = [None] * WORLD
    dist.all_gather_object(gathered, {"rank": RANK})
    assert gathered == [{"rank": rank} for rank in range(WORLD)]
    empty = torch.empty(0)
    dist.all_reduce(empty)
    dist.broadcast(empty, 0)


def asynchronous():
    tensors = [torch.full((1000,), float(i * (RANK + 1))) for i in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    futures = [work.get_future().then(lambda future: future.value()[0].sum().item()) for work in works]
    total = sum(range(1, WORLD + 1))
    for i, (work, future) in enumerate(zip(works, futures)):
        assert work.wait() and work.is_completed()
        assert future.wait() == 1000.0 * i * total, (i, future.wait())
    dist.barrier()

    import torch.distributed._functional_collectives as functional

    result = functional.all_reduce(torch.ones(3), "sum", dist.group.WORLD)
    assert torch.equal(result + 0, torch.full((3,), float(WORLD)))
    pair = dist.new_group([0, WORLD - 1])
    if RANK in (0, WORLD - 1):
        tensor = torch.ones(4)
        dist.all_reduce(tensor, group=pair)
        assert torch.equal(tensor, torch.full((4,), 2.0))


def transfers():
    peers = [rank for rank in range(WORLD) if rank != RANK]
    # Everyone receives first: transfers do not wait for each other.
    received = {peer: torch.empty(300_000) for peer in peers}
    works = [dist.irecv(received[peer], peer) for peer in peers]
    works += [dist.isend(torch.full((300_000,), float(RANK)), peer) for peer in peers]
    for work in works:
        work.wait()
    assert all(torch.equal(received[peer], torch.full((300_000,), float(peer))) for peer in peers)
    operations = [dist.P2POp(dist.irecv, received[peer], peer) for peer in peers]
    operations += [dist.P2POp(dist.isend, torch.full((300_000,), RANK + 0.5), peer) for peer in peers]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert all(torch.equal(received[peer], torch.full((300_000,), peer + 0.5)) for peer in peers)
    # Tags choose among the messages of a sender.
    if RANK == 0:
        for work in [dist.isend(torch.tensor([tag]), 1, tag=tag) for tag in (7, 8, 7, 9)]:
            work.wait()
    if RANK == 1:
        for tag in (9, 7, 8, 7):
            tensor = torch.zeros(1, dtype=torch.int64)
            assert dist.recv(tensor, 0, tag=tag) == 0
            assert tensor.item() == tag


def mistakes():
    calls = (
        lambda: dist.all_reduce(torch.ones(2), Op.BAND),
        lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), Op.AVG),
        lambda: dist.all_reduce(torch.ones(2).to_sparse()),
        lambda: dist.all_gather_into_tensor(torch.empty(3 * WORLD + 1), torch.empty(3)),
        lambda: dist.recv(torch.empty(1)),
    )
    for number, call in enumerate(calls):
        try:
            call()
        except (RuntimeError, ValueError):
            continue
        raise AssertionError(f"mistake {number} was accepted")
    dist.barrier()  # no mistake ended the group


def collectives():
    reductions()
    movements()
    uneven()
    asynchronous()
    transfers()
    mistakes()


def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))


def train(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(RANK)
    losses = []
    for _ in range(steps):
        x = torch.randn(16, 32, generator=generator)
        loss = ((model(x) - x[:, :4].sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def show(losses, parameters):
    assert losses[-1] < losses[0] / 2, losses
    if RANK == 0:
        print("parameters", *(f"{value:.9g}" for value in torch.cat([p.flatten() for p in parameters]).tolist()), flush=True)


def ddp():
    model = nn.parallel.DistributedDataParallel(net(), bucket_cap_mb=0.01)
    show(train(model, 40), [parameter.detach() for parameter in model.parameters()])


def fsdp():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (WORLD,))
    model = net()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    show(train(model, 40), [parameter.full_tensor().detach() for parameter in model.parameters()])


def failing(call):
    """Prints how long the call took to fail, and why."""
    began = time.monotonic()
    try:
        call()
    except RuntimeError as error:
        took = time.monotonic() - began
        print(f"failed after {took:.3f} s: {str(error).splitlines()[0]}", flush=True)
        try:
            dist.all_reduce(torch.ones(1))
        except RuntimeError:
            stay(1)  # the other ranks shall see the first death, not that of this rank
            os._exit(0)
    raise AssertionError("the operation did not fail, or a later one worked")


def stay(seconds):
    """Does nothing, as a rank that computes for long. No event ends it: the other ranks must notice or give up meanwhile."""
    threading.Event().wait(seconds)


def die():
    print(f"died at {time.monotonic():.3f}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def killed():
    """The last rank dies while the others wait for it in a collective."""
    tensor = torch.ones(1000)
    for _ in range(3):
        dist.all_reduce(tensor)
    if RANK == WORLD - 1:
        die()
    works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(5)]
    failing(lambda: [work.wait() for work in reversed(works)])


def bereft():
    """The last rank dies while rank 0 waits for a first message from it, and rank 1 for one from rank 0."""
    dist.barrier()
    if RANK == WORLD - 1:
        stay(0.3)
        die()
    failing(lambda: dist.recv(torch.empty(1), WORLD - 1 if RANK == 0 else 0))


def aborted():
    dist.barrier()
    if RANK == 0:
        stay(0.3)
        dist.distributed_c10d._abort_process_group()
        stay(2)
        os._exit(0)
    failing(dist.barrier)


def late():
    """The last rank never joins the operation, and stays alive until the others have given up."""
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=2))
    dist.barrier()
    if RANK == WORLD - 1:
        stay(6)
        os._exit(0)
    failing(lambda: dist.all_reduce(torch.ones(1), async_op=True).wait())


def main():
    part, backend = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=60))
    assert dist.get_backend() == backend
    globals()[part]()
    dist.destroy_process_group()


main()
