# SPDX-License-Identifier: Apache-2.0
"""Compares a run with the goals of the benchmark."""

# Without measuring algorithms, the default of runs, except the last: as max-autotune of PyTorch, which measures.
OURS, FAST, MEASURED = "ours exact", "ours fast", "ours exact, measured"
ALL_OURS = (OURS, FAST, MEASURED)
COMPILE = "torch compile"
STRONG = ("torch tuned", "torch max-autotune")  # how the names of variants begin that are a user's best effort
OVER_COMPILE, OVER_BEST, MFU, EXACT_COST = 1.3, 1.12, 0.58, 0.03


def lines(rates, mfu, counts):
    """Return one line per goal. rates: tokens/s by competitor; mfu: the share of the datasheet rate, None when unknown;
    counts: whether times mean anything here."""
    ours = rates[OURS]
    best_of_ours = max(ours, rates.get(MEASURED, ours))

    def line(goal, seen, met):
        if seen is None:
            return f"goal {goal}: NOT MEASURED"
        return f"goal {goal}: {seen}: " + (("met" if met else "MISSED") if counts else "means nothing by emulation")

    def times(goal, rate, least, mine):
        return line(goal, rate and f"{mine / rate:.2f} times", rate and mine / rate >= least)

    best = max((who for who in rates if who.startswith("torch ")), key=rates.get, default=None)
    strong = best if any(who.startswith(STRONG) for who in rates) else None
    cost = 1 - ours / rates[FAST] if FAST in rates else None
    return [
        times(f"at least {OVER_COMPILE} times torch.compile's default", rates.get(COMPILE), OVER_COMPILE, ours),
        times(f"at least {OVER_BEST} times PyTorch's best" + (f" ({strong})" if strong else ""), rates.get(strong),
              OVER_BEST, best_of_ours),
        line(f"at least {MFU:.0%} of the datasheet", None if mfu is None else f"{mfu:.1%}", mfu is not None and mfu >= MFU),
        line(f"exact numerics cost at most {EXACT_COST:.0%}", None if cost is None else f"{cost:+.1%}",
             cost is not None and cost <= EXACT_COST),
    ]
