# SPDX-License-Identifier: Apache-2.0
"""Loss scaling by a registered torch.amp.GradScaler, decided by all workers together.

A GradScaler multiplies the loss, so that small gradients of float16 do not become zero, and leaves out the step when a gradient
is not finite. It looks at the gradients of its own process. Here a gradient that is not finite counts as zero in the exact sums,
and a further tensor counts in how many micro-batches there was one: all workers read the same number from it.
"""

from __future__ import annotations

import math
from typing import Optional

import torch

from .._errors import Error

OVERFLOWS = "the overflow count of the GradScaler"  # the tensor, of one element
# Below it float16 has no more numbers, so gradients that are not finite even then are not made so by their scale.
_SMALLEST = 2.0**-24


class LossScaler:
    """The scale of one step after the other. Without a GradScaler, or with one that is not enabled, it is 1."""

    def __init__(self) -> None:
        self._name: Optional[str] = None
        self._scaler: Optional[torch.amp.GradScaler] = None  # if it is enabled
        self.scale = 1.0
        # Of the current micro-batch, float32 (1) where gradients are summed: 1 if one of its gradients was not finite.
        self.overflow = torch.zeros(1)

    def register(self, name: str, scaler: torch.amp.GradScaler) -> None:
        """Errors: there is one already."""
        if self._name is not None:
            raise Error(
                f"run.register({name}=...): {self._name} is a GradScaler already, and a step has one scale: register one"
            )
        self._name = name
        self._scaler = scaler if scaler.is_enabled() else None

    @property
    def enabled(self) -> bool:
        return self._scaler is not None

    def begin_step(self) -> None:
        if self._scaler is not None:
            self.scale = self._scaler.get_scale()

    def begin_micro_batch(self, memory: torch.device) -> None:
        """memory: where gradients are summed."""
        if self._scaler is not None:
            self.overflow = torch.zeros(1, device=memory)

    def finite(self, gradient: torch.Tensor) -> torch.Tensor:
        """Returns the gradient, float32 (elements), or zeros if it is not finite. Does not wait for a GPU."""
        if self._scaler is None:
            return gradient
        good = torch.isfinite(gradient).all()
        self.overflow = torch.where(good, self.overflow, 1.0)
        return torch.where(good, gradient, 0.0)

    def finite_loss(self, loss: float) -> float:
        """Returns the loss of the micro-batch, or 0.0 if neither it nor one of its gradients is finite: the step is skipped then.

        Waits for a GPU if the loss is not finite. REQUIRES: all gradients of the micro-batch were passed to `finite`.
        """
        if self._scaler is None or math.isfinite(loss) or float(self.overflow) == 0:
            return loss
        return 0.0

    def update(self, skipped: bool, step: int) -> None:
        """Chooses the scale of the next step, as GradScaler.update. Errors: no scale makes the gradients finite."""
        if self._scaler is None:
            return
        state = self._scaler.state_dict()
        successes = 0 if skipped else state["_growth_tracker"] + 1
        scale = state["scale"]
        if skipped:
            scale = _float32(scale * state["backoff_factor"])
            if scale < _SMALLEST:
                raise Error(
                    f"a gradient of step {step} is not finite, whatever the loss is multiplied by: the GradScaler has reduced "
                    f"its scale to {scale:g}. Look for NaN and infinity in the model and in the data"
                )
        elif successes == state["growth_interval"]:
            successes = 0
            grown = _float32(scale * state["growth_factor"])
            scale = grown if math.isfinite(grown) else scale
        self._scaler.load_state_dict({**state, "scale": scale, "_growth_tracker": successes})


def _float32(value: float) -> float:
    return torch.tensor(value, dtype=torch.float32).item()
