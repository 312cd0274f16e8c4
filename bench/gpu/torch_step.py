# SPDX-License-Identifier: Apache-2.0
"""One training step of a PyTorch variant. All variants have bf16 autocast over float weights (the masters), float m and v,
AdamW, norm clipped to 1, one micro-batch, TF32 for the remaining float products, and tokens copied from pinned memory.

The variants differ in:
  eager, compile     the usual program: fused AdamW, PyTorch's default order of attention backends, the residual stream in
                     float, as autocast leaves it
  tuned              the same compiler, but with cuDNN attention, then Flash; the residual stream in bf16, like ours; norm,
                     clipping and AdamW compiled too, without a separate CUDA graph, because they are a few long kernels
  max-autotune...    as tuned, and the compiler measures kernels for each product, which takes minutes
"""

import contextlib
import dataclasses

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_model import Gpt2, load


@dataclasses.dataclass(frozen=True)
class Variant:
    mode: str | None = None  # torch.compile's
    strong: bool = False


VARIANTS = {
    "eager": Variant(),
    "compile": Variant("default"),
    "tuned": Variant("default", strong=True),
    "max-autotune": Variant("max-autotune", strong=True),
    "max-autotune-no-cudagraphs": Variant("max-autotune-no-cudagraphs", strong=True),
}


class Training:
    def __init__(self, variant: Variant, flags, layout):
        self.device = torch.device(flags.device)
        self.on_gpu = self.device.type == "cuda"
        self.autocast = flags.precision == "bf16"
        self.variant = variant
        self.clip_norm = layout["clip_norm"]
        torch.set_float32_matmul_precision("high")
        narrow = variant.strong and self.autocast
        self.model = Gpt2(flags, torch.bfloat16 if narrow else torch.float32)
        load(self.model, flags.folder, layout)
        self.model.to(self.device)
        self.parameters = list(self.model.parameters())
        groups = [{"params": [p for p in self.parameters if p.dim() >= 2], "weight_decay": layout["weight_decay"]},
                  {"params": [p for p in self.parameters if p.dim() < 2], "weight_decay": 0.0}]
        # The compiler fuses the kernels of AdamW's foreach form; it cannot change the fused form.
        kind = {"foreach": True, "capturable": self.on_gpu} if variant.strong else {"fused": True}
        self.optimizer = torch.optim.AdamW(groups, lr=layout["learning_rate"], betas=(layout["beta1"], layout["beta2"]),
                                           eps=layout["epsilon"], **kind)
        self.forward, self.update = self.model, self._update
        if variant.mode:
            self.forward = torch.compile(self.model, mode=None if variant.mode == "default" else variant.mode,
                                         fullgraph=True, dynamic=False)
        if variant.strong:
            self.update = torch.compile(self._update, mode="max-autotune-no-cudagraphs", dynamic=False)

    def attention(self):
        """Return the context for all steps: the allowed attention backends, in order of preference."""
        if not self.variant.strong:
            return contextlib.nullcontext()
        chosen = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]
        return sdpa_kernel(chosen if self.on_gpu else [*chosen, SDPBackend.MATH], set_priority=True)

    def watched_step(self, batch):
        """Run one step and return its loss and the attention kernels that ran. Call it after the first step: then the step is
        compiled, and no CUDA graph replays it yet."""
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            loss = self.step(batch)
        names = {each.key.split("::")[-1] for each in seen.key_averages() if "_scaled_dot_product_" in each.key}
        return loss, ", ".join(sorted(name.removeprefix("_scaled_dot_product_") for name in names)) or "not seen"

    def _update(self):
        torch.nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)
        self.optimizer.step()

    def step(self, batch):
        """Run one step. The loss stays on the device and nothing waits for it, whereas our step copies it to the host."""
        tokens, targets = (part.to(self.device, non_blocking=True) for part in batch)
        if self.on_gpu and self.variant.mode:
            torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.autocast):
            loss = self.forward(tokens, targets)
        loss.backward()
        kept = loss.detach().clone()  # a CUDA graph writes the next loss to the same address
        self.update()
        self.optimizer.zero_grad(set_to_none=True)
        return kept

    def policy(self):
        kind = "bf16 autocast" if self.autocast else "float"
        residual = "bf16" if self.model.residual_type == torch.bfloat16 else "float"
        adamw = "compiled with norm and clip" if self.variant.strong else "fused"
        return (f"{kind}, float weights, m and v, residual stream {residual}, AdamW {adamw}, "
                f"TF32 {'on' if torch.get_float32_matmul_precision() == 'high' else 'off'}")
