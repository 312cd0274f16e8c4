// SPDX-License-Identifier: Apache-2.0

// Exact numerics: sums of gradients that do not depend on order, world size or algorithm. Newcomers start
// here; reference.cc defines each function one element at a time, and docs/internals/exact-numerics.md has
// the derivation and the error table.
//
// The gradient of a step is the sum over V micro-batches of g_v. All members agree on an exponent E for each
// block of kBlock elements before the step. g_v is quantised to the integer q = rint(g_v * 2^(L - E)), with
// L = 30 - ceil(log2 V) bits. The sum of V such integers fits int32 as long as |g_v| <= 2^E, and integers can
// be added in any order.
//
// Two limbs give a sum 2 L bits. Limb 0 is q as above. Limb 1 is the rest, (g_v * 2^(L - E) - q), quantised
// to another L bits. Each limb is added as a separate int32, without carries, so that everything that adds
// int32 also adds these, and so that no sum of V limbs wraps.
//
// A block overflows when some |g_v| exceeds 2^E. Overflow is decided per g_v and not per sum, so that it does
// not depend on which member owns which v. The exponents of the next step follow from the largest |g_v| of
// this step per block, plus two bits of slack. A step that overflows is repeated with exponents from its own
// maxima; this is deterministic, and rare with the exception of the first step.
//
// NaN and infinity: the maximum of a block that holds one is kNotFinite, on all members alike; the step loop
// decides what to do.
//
// Shapes: gradients are (N) with N a multiple of kBlock; exponents and maxima are (N / kBlock). Sums are
// (N / kBlock, limbs, kBlock), with one or two limbs: the length of `sums` chooses.
//
// Arithmetic: single operations of IEEE 754, rounded to nearest even, with subnormals, on every device and on
// threads that flush subnormals elsewhere (base/subnormals.h).
//
// Thread-safe: all functions are pure. Different threads may work on different blocks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/compute/engine/layout.h"

namespace ringmaster::numerics {

using engine::kBlock;

// Exponent of a block without history: every value except zero overflows.
inline constexpr int32_t kUnknown = -1000;
// Maximum of a block that holds a NaN or an infinity.
inline constexpr int32_t kNotFinite = 1000;
// Maximum of a block of zeros; maxima are initialised to it before a step.
inline constexpr int32_t kZero = -999;
// An exponent is kUnknown or in this range, so that 2^(L - E) is a normal float for every L. A block whose
// largest value is below 2^-96 uses the exponent -96. The largest float needs 128, plus two bits of slack.
inline constexpr int32_t kMinExponent = -96;
inline constexpr int32_t kMaxExponent = 130;

// The number of limbs of a sum: 1 in the mode exact, 2 in the mode exact64.
inline constexpr int kMaxLimbs = 2;

// Returns the number of limbs of `sums` int32 in `blocks` blocks; a wrong length is a bug.
int LimbsOf(size_t sums, size_t blocks);

// Returns L, the bits of one limb of a quantised value. REQUIRES: 1 <= micro_batches <= 65536.
int QuantumBits(int micro_batches);

// sums += the quantised gradients, and maxima[b] = max(maxima[b], smallest e with |g| <= 2^e for all g of
// block b). With `overwrite`, for the first micro-batch of a step, sets both instead. A block whose maximum
// exceeds its exponent contributes 0, since the step is going to be repeated.
void Accumulate(std::span<const float> grads, std::span<const int32_t> exponents, int quantum_bits,
                bool overwrite, std::span<int32_t> sums, std::span<int32_t> maxima);
void AccumulateReference(std::span<const float> grads, std::span<const int32_t> exponents, int quantum_bits,
                         bool overwrite, std::span<int32_t> sums, std::span<int32_t> maxima);

// Returns whether the step must be repeated. REQUIRES: `maxima` is reduced by max over all members. Ignores
// blocks that are not finite, because no exponent fits them: check NotFinite as well.
bool Overflowed(std::span<const int32_t> maxima, std::span<const int32_t> exponents);
bool NotFinite(std::span<const int32_t> maxima);

// Updates the exponents for a repetition of the step: a block that overflowed gets its maximum, the others
// keep their exponent.
void ExponentsForRedo(std::span<const int32_t> maxima, std::span<int32_t> exponents);

// Updates the exponents for the step after `step`. The exponent of a block is the largest of:
//   - its maximum in this step plus two bits,
//   - its old exponent, lowered by one bit every kSinkEvery steps,
//   - the largest maximum of the blocks of the same parameter. A row of an embedding has a large gradient
//     only when its token occurs, and would otherwise overflow each time.
// A parameter without a usable maximum (all zero or not finite) keeps its exponents.
inline constexpr int64_t kSinkEvery = 64;
void ExponentsForNext(const engine::Layout& layout, std::span<const int32_t> maxima, int64_t step,
                      std::span<int32_t> exponents);

// out = sum * 2^(E - L) * scale: one multiplication in double per element, rounded once. With two limbs
// out = (limb 0 * 2^L + limb 1) * 2^(E - 2 L) * scale: one more rounding, to double, of the sum in brackets.
// `out` may be the memory of `sums` with one limb. A sum is always finite.
void Decode(std::span<const int32_t> sums, std::span<const int32_t> exponents, int quantum_bits, double scale,
            std::span<float> out);
void DecodeReference(std::span<const int32_t> sums, std::span<const int32_t> exponents, int quantum_bits,
                     double scale, std::span<float> out);

// Returns the Euclidean norm. The order of additions is fixed: per block in double, in sixteen lanes, then
// over the blocks of a group of kNormGroup, then over the groups; so equal input gives equal bits with any
// number of threads. One chain of additions over all blocks of a large model would take a GPU, which adds
// each group by a separate thread, a millisecond.
inline constexpr int64_t kNormGroup = 256;
double Norm(std::span<const float> values);
double NormReference(std::span<const float> values);

// Fast numerics, element by element: sums += values, and out = values * factor. `out` may be the memory of
// `values`. Subnormals as on the calling thread.
void Add(std::span<const float> values, std::span<float> sums);
void Multiply(std::span<const float> values, float factor, std::span<float> out);

// Returns the sum in index order.
double OrderedSum(std::span<const double> values);

}  // namespace ringmaster::numerics
