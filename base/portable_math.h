// SPDX-License-Identifier: Apache-2.0

// Elementary functions whose bits are the same on every CPU and with every C library. Those of <cmath> differ
// in their last bits between versions of the C library and between CPUs with and without fused multiply-adds.
//
// Each is a fixed sequence of single IEEE 754 operations on doubles; the build disables contraction. The
// relative error is below 1e-15 (tested against <cmath>), except near a zero of sine and cosine, where the
// absolute error is below 1e-16. Pure.
#pragma once

#include <cstdint>

namespace ringmaster::portable {

// Returns the natural logarithm: -infinity for zero, NaN for negative numbers and for NaN.
double Log(double x);

struct SineCosine {
  double sine;
  double cosine;
};
// REQUIRES: |radians| <= 1e6.
SineCosine SinCos(double radians);

// Returns base^exponent by repeated squaring. The relative error grows with the exponent, by 2^-52 each.
// REQUIRES: exponent >= 0.
double IntegerPower(double base, int64_t exponent);

}  // namespace ringmaster::portable
