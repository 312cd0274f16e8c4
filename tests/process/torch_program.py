# SPDX-License-Identifier: Apache-2.0
"""Small programs that train through ringmaster.torch, for kill_schedules and torch_mistakes: torch_program.py MODEL STEPS

Each model has parts whose state is easy to lose or to make depend on the number of workers:
  resnet  BatchNorm, dropout, a mean of the weights (EMA), augmentation by random numbers, a process that reads ahead
  gpt     tied weights, activation checkpointing, groups of parameters, validation, a random generator between steps, float16
          by autocast with a GradScaler whose scale soon is too large, again and again
  lora    a frozen base in bfloat16, adapters, two optimizers, schedulers of which one follows the loss, gradients that are
          changed between reduction and update, a layer that only some micro-batches use, a stream that shuffles in a buffer
  week    what people write in their first week: a DataLoader with a weighted sampler, weights per micro-batch, two losses, two
          optimizers that take turns, a schedule of epochs, an evaluation on all workers whose results steer it, and one at the end
"""

import sys

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.checkpoint import checkpoint

import ringmaster.torch as rm

MICRO_BATCHES = 6  # the largest number of workers in kill_schedules


def fixed(*shape, seed):
    """Returns random numbers that do not depend on the state of the global generator."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# ---- resnet ----


class Images(torch.utils.data.Dataset):
    """250 images, shape (1, 8, 8): the last step of an epoch is short."""

    def __init__(self):
        self.classes = torch.arange(250) % 10
        self.images = fixed(250, 1, 8, 8, seed=1) + fixed(10, 1, 8, 8, seed=2)[self.classes]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        return image.flip(2) if torch.rand(()) < 0.5 else image, self.classes[index]


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + self.second(torch.relu(self.norm(self.first(x))))


def resnet(steps):
    run = rm.init(micro_batches=MICRO_BATCHES, samples_per_step=48, seed=11)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), Residual(8), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, 10))
    mean = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.95))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=steps)
    run.register(model=model, mean=mean, optimizer=optimizer, scheduler=scheduler)
    images = Images()
    for step in run.steps(steps):
        for x, y in step.micro_batches(images, num_workers=1):
            step.backward(cross_entropy(model(x), y))
        if step.commit():
            mean.update_parameters(model)


# ---- gpt ----

VOCABULARY, CONTEXT, WIDTH, HEADS = 64, 24, 32, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (part.view(b, t, HEADS, -1).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, 2))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.mlp(self.norm_2(x))


class Gpt(nn.Module):
    """Maps tokens (B, T) to scores (B, T, VOCABULARY)."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList([Block()])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(self.norm(x))


def gpt(steps):
    run = rm.init(micro_batches=MICRO_BATCHES, seed=12, numerics="exact64")
    model = Gpt()
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20))
    generator = torch.Generator().manual_seed(3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**22, growth_interval=4)
    run.register(model=model, optimizer=optimizer, scheduler=scheduler, generator=generator, scaler=scaler)
    text = ((torch.arange(4000) * 7 + fixed(4000, seed=4).mul(2).long()) % VOCABULARY)

    def batch(step, v):
        starts = torch.randint(0, len(text) - CONTEXT - 1, (4,))  # by the seed of the micro-batch
        rows = torch.stack([text[start : start + CONTEXT + 1] for start in starts])
        return rows[:, :-1], rows[:, 1:]

    for step in run.steps(steps):
        for x, y in step.micro_batches(batch):
            with torch.autocast("cpu", torch.float16):
                scores = model(x)
            step.backward(cross_entropy(scores.float().flatten(0, 1), y.flatten()))
        if step.commit(clip_norm=1.0):
            with torch.no_grad():  # noise in the weights, by a generator that is state
                model.norm.bias.add_(torch.randn(WIDTH, generator=generator), alpha=1e-4)
            if (step.number + 1) % 25 == 0:
                model.eval()
                with torch.no_grad():
                    run.validated(cross_entropy(model(text[None, :CONTEXT])[0], text[1 : CONTEXT + 1]), 0.5)
                model.train()


# ---- lora ----


class Adapted(nn.Module):
    """A linear layer in bfloat16 that is not trained, plus a product of two small matrices that are."""

    def __init__(self, inputs, outputs, rank=4):
        super().__init__()
        self.base = nn.Linear(inputs, outputs).to(torch.bfloat16).requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, inputs) * 0.1)
        self.up = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x):
        return self.base(x.to(torch.bfloat16)).float() + x @ self.down.T @ self.up.T


class Lora(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Adapted(16, 64), Adapted(64, 4)
        self.rare = nn.Linear(64, 4)

    def forward(self, x, rare):
        hidden = torch.tanh(self.first(x))
        return self.second(hidden) + (self.rare(hidden) if rare else 0)


class Stream(torch.utils.data.IterableDataset):
    """Pairs in an order and with noise by the global generator, in passes of 200."""

    def __init__(self):
        self.x, self.y = fixed(200, 16, seed=5), fixed(200, 4, seed=6)

    def __iter__(self):
        buffer = []
        for x, y in zip(self.x, self.y):
            buffer.append({"x": x + 0.01 * torch.randn(16), "y": y})
            if len(buffer) == 32:
                yield buffer.pop(int(torch.randint(32, ())))
        yield from buffer


def lora(steps):
    run = rm.init(micro_batches=MICRO_BATCHES, samples_per_step=48, seed=13)
    model = Lora()
    down = [p for name, p in model.named_parameters() if name.endswith("down")]
    others = [p for p in model.parameters() if p.requires_grad and all(p is not d for d in down)]
    adam = torch.optim.AdamW([{"params": down, "lr": 1e-2}, {"params": others, "lr": 2e-2, "weight_decay": 0}], amsgrad=True)
    bias = nn.Parameter(torch.zeros(4))
    shift = nn.ParameterDict({"bias": bias})
    sgd = torch.optim.SGD([bias], lr=0.1, momentum=0.9)
    cosine = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(adam, T_0=40)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(sgd, patience=5)
    counts = {"steps": 0, "losses": []}
    run.register(model=model, shift=shift, adam=adam, sgd=sgd, cosine=cosine, plateau=plateau, counts=counts)
    stream = Stream()
    for step in run.steps(steps):
        for rows in step.micro_batches(stream):
            rare = step.number % 7 == 0 and step.micro_batch == 1
            step.backward(mse_loss(model(rows["x"], rare) + bias, rows["y"]))
        if not step.reduce():
            continue
        for parameter in down:
            if parameter.grad is not None:
                parameter.grad.clamp_(-0.01, 0.01)
        if step.commit():
            plateau.step(step.loss)
            counts["steps"] += 1
            counts["losses"] = [*counts["losses"][-9:], step.loss]


# ---- week ----


class Tokens(torch.utils.data.Dataset):
    """100 sequences of 1 to 8 tokens, shape (8), and their lengths."""

    def __init__(self):
        self.lengths = (torch.arange(100) * 7) % 8 + 1
        self.tokens = fixed(100, 8, seed=7)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index] + 0.1 * torch.randn(8), self.lengths[index]


def week(steps):
    run = rm.init(micro_batches=MICRO_BATCHES, samples_per_step=24, seed=14)
    first, second = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1))
    adam, sgd = torch.optim.AdamW(first.parameters(), lr=1e-2), torch.optim.SGD(second.parameters(), lr=0.1, momentum=0.9)
    epochs = torch.optim.lr_scheduler.ExponentialLR(adam, 0.9)
    seen = {"evaluations": [], "best": 1e9}
    run.register(first=first, second=second, adam=adam, sgd=sgd, epochs=epochs, seen=seen)
    weights = (torch.arange(100) % 3 + 1).double()
    loader = torch.utils.data.DataLoader(
        Tokens(), batch_size=4, sampler=torch.utils.data.WeightedRandomSampler(weights, 90), num_workers=1)
    validation = torch.utils.data.DataLoader(Tokens(), batch_size=7)

    def evaluate():
        evaluation = run.evaluate(validation)
        second.eval()
        with torch.no_grad():
            for x, lengths in evaluation:
                error = (second(first(x)) - x).square().mean(1)
                evaluation.add(error=(error * lengths).sum(), tokens=lengths.sum())
                evaluation.collect(error.max())
        second.train()
        sums = evaluation.sums()
        worst = evaluation.collected() if sums else None
        return None if worst is None else (sums["error"] / sums["tokens"], float(max(worst)))

    for step in run.steps(steps):
        found = evaluate() if step.number % 10 == 5 else None
        for x, lengths in step.micro_batches(loader):
            mask = torch.arange(8) < lengths[:, None]
            tokens = int(mask.sum())
            step.backward((first(x) - x).square()[mask].mean(), weight=tokens)
            step.backward(0.5 * (second(first(x)) - x).square()[mask].mean(), weight=tokens)
        if step.commit(optimizers=adam if step.number % 3 else [adam, sgd], schedule=step.ends_epoch) and found:
            seen["evaluations"] = [*seen["evaluations"][-4:], *found]
            if found[0] < seen["best"]:
                seen["best"] = found[0]
            else:
                for group in sgd.param_groups:
                    group["lr"] *= 0.9
    print(f"the end: {evaluate()}", flush=True)


def main():
    model, steps = sys.argv[1], int(sys.argv[2])
    {"resnet": resnet, "gpt": gpt, "lora": lora, "week": week}[model](steps)


if __name__ == "__main__":
    main()
