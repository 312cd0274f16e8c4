#!/usr/bin/env python3
"""The same GPT-2 step by PyTorch, in JSON lines for bench/gpu/run.

    torch_gpt2.py curve --folder F ...    the losses of the steps whose weights and tokens bench_gpu wrote to F
    torch_gpt2.py speed ...               the median time of a step

bf16 autocast over float weights, AdamW (fused on a GPU), norm clipped to 1, head tied, biases, no dropout. The vocabulary
is padded to a multiple of 64, which PyTorch's products like better. A step is timed by CUDA events around it, with its
copy of tokens and its update; losses are read when all steps are done.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANTS = {  # torch.compile's mode, and the attention to prefer
    "eager": (None, False),
    "compile": ("default", False),
    "max-autotune": ("max-autotune", True),
    "max-autotune-no-cudagraphs": ("max-autotune-no-cudagraphs", True),
}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.attn_c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).split(c, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_c_proj(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp_c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, flags):
        super().__init__()
        padded = (flags.vocabulary + 63) // 64 * 64 if flags.vocabulary > 1000 else flags.vocabulary
        self.wte, self.wpe = nn.Embedding(padded, flags.width), nn.Embedding(flags.context, flags.width)
        self.h = nn.ModuleList(Block(flags.width, flags.heads) for _ in range(flags.layers))
        self.ln_f = nn.LayerNorm(flags.width)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def load(model, folder, layout):
    """Weights as bench_gpu wrote them: [in, out], and without the rows that pad the vocabulary."""
    arena = torch.frombuffer(bytearray((folder / "weights.f32").read_bytes()), dtype=torch.float32)
    ours = dict(model.named_parameters())
    with torch.no_grad():
        ours["wte.weight"].zero_()
        for parameter in layout["parameters"]:
            size = 1
            for extent in parameter["shape"]:
                size *= extent
            value = arena[parameter["offset"] : parameter["offset"] + size].view(parameter["shape"])
            name = parameter["name"]
            if name.startswith("h."):
                name = name.replace("attn.c_attn", "c_attn").replace("attn.c_proj", "attn_c_proj")
                name = name.replace("mlp.c_fc", "c_fc").replace("mlp.c_proj", "mlp_c_proj")
                if len(parameter["shape"]) == 2:
                    value = value.T
            ours[name][: value.shape[0]].copy_(value)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["curve", "speed"])
    parser.add_argument("--variant", choices=VARIANTS, default="eager")
    parser.add_argument("--device", default="cuda")
    for name in ("layers", "heads", "width", "context", "vocabulary", "samples", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--warm-up", type=int, default=20)
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--folder", type=pathlib.Path)
    flags = parser.parse_args()
    device = torch.device(flags.device)
    on_gpu = device.type == "cuda"
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    optimizer_of = {"learning_rate": 3e-4, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1, "clip_norm": 1.0}
    model = Gpt2(flags)
    if flags.folder:
        layout = json.loads((flags.folder / "layout.json").read_text())
        optimizer_of = layout
        load(model, flags.folder, layout)
    model.to(device)
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": optimizer_of["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
        lr=optimizer_of["learning_rate"], betas=(optimizer_of["beta1"], optimizer_of["beta2"]),
        eps=optimizer_of["epsilon"], fused=on_gpu)
    mode, prefers_cudnn = VARIANTS[flags.variant]
    forward = model if mode is None else torch.compile(model, mode=None if mode == "default" else mode)
    shape = (flags.samples, flags.context)
    if flags.mode == "curve":
        tape = torch.frombuffer(bytearray((flags.folder / "tokens.i32").read_bytes()), dtype=torch.int32)
        tape = tape.view(-1, 2, *shape)
        batches = [(each[0].long(), each[1].long()) for each in tape[: flags.steps]]
    else:
        batches = [torch.randint(flags.vocabulary, (2, *shape)).unbind() for _ in range(8)]
    if on_gpu:
        batches = [(tokens.pin_memory(), targets.pin_memory()) for tokens, targets in batches]

    def step(number):
        tokens, targets = (part.to(device, non_blocking=True) for part in batches[number % len(batches)])
        if on_gpu and mode is not None:
            torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=flags.precision == "bf16"):
            loss = forward(tokens, targets)
        loss.backward()
        kept = loss.detach().clone()
        torch.nn.utils.clip_grad_norm_(model.parameters(), optimizer_of["clip_norm"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return kept

    if prefers_cudnn and on_gpu:
        from torch.nn.attention import SDPBackend, sdpa_kernel
        attention = sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True)
    else:
        attention = contextlib.nullcontext()
    with attention:
        if flags.mode == "curve":
            losses = [step(number) for number in range(flags.steps)]
            for number, loss in enumerate(losses, 1):
                print(json.dumps({"step": number, "loss": float(loss)}))
            return
        begin = time.perf_counter()
        float(step(0))
        compiled = time.perf_counter() - begin
        for number in range(flags.warm_up):
            step(number)
        times, marks, losses = [], [], []
        if on_gpu:
            torch.cuda.synchronize()
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(flags.steps + 1)]
            marks[0].record()
        for number in range(flags.steps):
            before = time.perf_counter()
            losses.append(step(number))
            if on_gpu:
                marks[number + 1].record()
            else:
                times.append(time.perf_counter() - before)
        if on_gpu:
            torch.cuda.synchronize()
            times = [a.elapsed_time(b) / 1e3 for a, b in zip(marks, marks[1:])]
        print(json.dumps({"variant": flags.variant, "median_s": statistics.median(times), "mean_s": sum(times) / len(times),
                          "first_s": compiled, "loss": float(losses[-1]), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
