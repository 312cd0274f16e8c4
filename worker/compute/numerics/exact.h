// SPDX-License-Identifier: Apache-2.0

// Exact numerics: sums of gradients that do not depend on order, world size or algorithm.
//
// A step's gradient is the sum over V logical micro-batches of g_v. Each block of kBlock elements has an
// exponent E agreed by all members before the step; g_v is quantised to q = rint(g * 2^(L - E)) with L = 30 -
// ceil(log2 V), so that the sum of V of them fits int32 when |g| <= 2^E; integers add in any order. Source:
// facts on elastic training, section 2.5. The verdict "a block overflowed" is taken per g_v, not per sum, so
// that it does not depend on who holds which v. The exponents of the next step follow from this step's
// largest |g_v| per block, with two bits of slack; a step that overflows is done again with exponents from
// its own maxima (deterministic, and rare: the first step always).
//
// NaN and infinity: a block with a value that is not finite gets the maximum kNotFinite, on all members
// alike; the step loop decides what to do.
//
// Thread rule: distinct block ranges may be worked on by distinct threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/compute/engine/layout.h"

namespace ringmaster::numerics {

using engine::kBlock;

// Exponent of a block of which nothing is known yet: everything but zero overflows.
inline constexpr int32_t kUnknown = -1000;
// Maximum of a block that holds a NaN or an infinity.
inline constexpr int32_t kNotFinite = 1000;
// Maximum of a block that is all zero. What maxima are filled with before a step.
inline constexpr int32_t kZero = -999;
// Exponents are kUnknown or in this range: 2^(L - E) is then a normal float for every L. Blocks whose largest
// value is below 2^-96 are quantised with that exponent; above, 128 plus two bits of slack is the most.
inline constexpr int32_t kMinExponent = -96;
inline constexpr int32_t kMaxExponent = 130;

// The bits L left for one micro-batch. micro_batches in [1, 65536].
int QuantumBits(int micro_batches);

// First micro-batch of a step: overwrite = true; sums and maxima are then set instead of added to. `grads`
// and `sums` are whole blocks of equal length; exponents and maxima have one entry per block. maxima[b] =
// max(maxima[b], smallest e with |g| <= 2^e for all g of the block). A block whose maximum exceeds its
// exponent contributes 0 (the step will be redone).
void Accumulate(std::span<const float> grads, std::span<const int32_t> exponents, int quantum_bits,
                bool overwrite, std::span<int32_t> sums, std::span<int32_t> maxima);
void AccumulateReference(std::span<const float> grads, std::span<const int32_t> exponents, int quantum_bits,
                         bool overwrite, std::span<int32_t> sums, std::span<int32_t> maxima);

// After maxima were reduced by max over all members: must the step be redone? Blocks that are not finite do
// not count (no exponent would help): ask NotFinite as well.
bool Overflowed(std::span<const int32_t> maxima, std::span<const int32_t> exponents);
bool NotFinite(std::span<const int32_t> maxima);

// Exponents for doing the same step again: those that overflowed become what the maxima ask for, the others
// stay.
void ExponentsForRedo(std::span<const int32_t> maxima, std::span<int32_t> exponents);

// Exponents for the step after `step`: two bits above this step's maxima, or the old ones where those are
// higher; they sink by at most one bit every kSinkEvery steps. And at least the largest maximum of the blocks
// of the same parameter: an embedding's rows have large gradients only when their token occurs, and would
// else overflow each time one does. Where nothing of a parameter is known (all zero, or not finite), its
// blocks keep theirs.
inline constexpr int64_t kSinkEvery = 64;
void ExponentsForNext(const engine::Layout& layout, std::span<const int32_t> maxima, int64_t step,
                      std::span<int32_t> exponents);

// out = sum * 2^(E - L) * scale, each element by one multiplication in double rounded once. In place over the
// same bytes is fine (out may alias sums). Not-finite sums cannot occur.
void Decode(std::span<const int32_t> sums, std::span<const int32_t> exponents, int quantum_bits, double scale,
            std::span<float> out);

// Euclidean norm with a fixed order: per block in double, in sixteen lanes, then over blocks. Equal bits for
// equal input, any thread count.
double Norm(std::span<const float> values);
double NormReference(std::span<const float> values);

// Sum of doubles in index order.
double OrderedSum(std::span<const double> values);

}  // namespace ringmaster::numerics
