# SPDX-License-Identifier: Apache-2.0
"""Schedulers that count epochs, in a loop that calls them after each step."""

from __future__ import annotations

from typing import Any, Optional

from torch.optim import lr_scheduler

_VANISHED = 1e-4  # of the learning rate: schedules that count steps leave more of it


def counts_epochs(scheduler: Any, steps: int) -> Optional[str]:
    """Returns what a scheduler would do in a run of `steps` steps that shows that it counts epochs; None: nothing does."""
    if isinstance(scheduler, lr_scheduler.SequentialLR):
        # The last one lasts; those before it may be a warmup.
        return counts_epochs(scheduler._schedulers[-1], steps - scheduler._milestones[-1])
    if isinstance(scheduler, lr_scheduler.ChainedScheduler):
        found = (counts_epochs(each, steps) for each in scheduler._schedulers)
        return next((why for why in found if why is not None), None)
    factor = 1.0
    if isinstance(scheduler, lr_scheduler.StepLR):
        factor = scheduler.gamma ** (steps // scheduler.step_size)
    elif isinstance(scheduler, lr_scheduler.ExponentialLR):
        factor = scheduler.gamma**steps
    elif isinstance(scheduler, lr_scheduler.MultiStepLR):
        last = max(scheduler.milestones, default=steps)
        if last * 20 < steps:
            return f"its last milestone, {last}, is at the start"
    elif isinstance(scheduler, lr_scheduler.CosineAnnealingLR):
        if scheduler.T_max * 2 < steps:
            return f"its rate falls and rises again every {scheduler.T_max} steps"
    elif isinstance(scheduler, lr_scheduler.PolynomialLR):
        if scheduler.total_iters * 20 < steps:
            return f"its rate is 0 from step {scheduler.total_iters} on"
    return f"the learning rate falls to {factor:.0e} of its start" if 0 <= factor < _VANISHED else None
