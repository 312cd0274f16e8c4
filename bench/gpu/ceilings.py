# SPDX-License-Identifier: Apache-2.0
"""Reports where the time of a step goes, next to the best time of each part on this GPU, measured in the same run.

Three columns: the time of our kernel; the floor, from the rates of large products and of copies; and the ceiling that an
existing implementation reaches: the fastest cuBLASLt algorithm for the same product, the fastest attention of PyTorch
(cuDNN or Flash), the rate of copies for everything else. A part that a step could omit, or fuse with another part, has no
ceiling: all of its time counts against us.
"""

AVOIDABLE = {"gradients to zero", "weights to bf16", "exact sums", "exact sums, decoded", "gradients of biases",
             "hash of the state"}


def sdpa(results):
    """Return {part: (milliseconds, backend)} of the fastest backend, for forward and backward."""
    best = {}
    for result in results or []:
        for part, key in (("attention", "forward_ms"), ("attention, backward", "backward_ms")):
            if key in result and result[key] < best.get(part, (float("inf"), ""))[0]:
                best[part] = (result[key], result["backend"])
    return best


def rows(parts, products, attention):
    """Return (peak, copy, [(name, calls, milliseconds, floor, ceiling or None)]) of one step; times are those of one call."""
    peak, copy = parts[0]["products_tflops"], parts[0]["copy_gbps"]
    table = [("product " + each["product"], each["calls"], each["milliseconds"], each["flops"] / peak * 1e-9,
              each["milliseconds"]) for each in products if each["calls"] > 0]
    for part in parts[1:]:
        name, floor = part["part"], max(part["flops"] / peak * 1e-9, part["bytes"] / copy * 1e-6)
        ceiling = None if name in AVOIDABLE else attention.get(name, (floor,))[0]
        if part["counted"]:
            table.append((f"{name}, {part['by']}" if part["by"] else name, part["calls"], part["milliseconds"], floor, ceiling))
    return peak, copy, table


def lines(parts, products, sdpa_results, step_ms):
    """Yield the lines of the table. step_ms: the time of a step."""
    attention = sdpa(sdpa_results)
    peak, copy, table = rows(parts, products, attention)
    yield (f"ceilings: products {peak:.0f} TFLOP/s (bf16, random numbers), {parts[0]['sustained_tflops']:.0f} over two seconds, "
           f"copy {copy:.0f} GB/s, PyTorch's attention in a layer:")
    for result in sdpa_results or [{"backend": "none", "why": "PyTorch is not installed; the floor replaces it"}]:
        yield f"  {result['backend']}: " + (result["why"] if "why" in result else
                                            f"forward {result['forward_ms']:.3f} ms, backward {result['backward_ms']:.3f} ms")
    for part in parts[1:]:
        if part["by"]:
            theirs, backend = attention.get(part["part"], (None, None))
            ratio = f", {part['milliseconds'] / theirs:.2f} times {backend}'s" if theirs else ""
            yield (f"  ours by {part['by']}, {part['part']}: {part['milliseconds']:.3f} ms{ratio}"
                   f"{'' if part['counted'] else ' (not chosen)'}")
    yield f"  {'part':<40} {'calls':>5} {'ms':>9} {'floor ms':>9} {'of floor':>8} {'ceiling ms':>10}"
    for name, calls, milliseconds, floor, ceiling in table:
        share = f"{floor / milliseconds:>8.2f}" if milliseconds > 0 else f"{'-':>8}"
        best = f"{'-':>10}" if ceiling is None else f"{calls * ceiling:>10.3f}"
        yield f"  {name:<40} {calls:>5.0f} {calls * milliseconds:>9.3f} {calls * floor:>9.3f} {share} {best}"
    total, floors, ceilings = (sum(row[1] * (row[at] or 0) for row in table) for at in (2, 3, 4))
    yield f"  {'sum':<40} {'':>5} {total:>9.3f} {floors:>9.3f} {'':>8} {ceilings:>10.3f}"
    if ceilings > 0:
        yield f"  the step took {step_ms:.3f} ms: {step_ms / ceilings:.2f} times the sum of ceilings"
