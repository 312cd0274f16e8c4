/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A model in plain C, trained with libringmaster: a network of one hidden layer learns the sine. Kill any of the
 * workers while it trains; the weights at the end have the same bits.
 *
 *   cc -std=c11 -Iinclude examples/c/train.c -Lbuild/release/lib -lringmaster -lm -o train
 *   ringmaster run examples/c/sine.yaml
 *
 * Alone, the same program trains as the only worker. Usage: train [--pause-ms N] [STEPS]. Every micro-batch takes N
 * milliseconds longer (default 0), so that there is time to kill a worker.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ringmaster.h"

enum { kHidden = 32, kSamples = 4096, kSamplesPerStep = 64, kMicroBatches = 8 };
enum { kPerMicroBatch = kSamplesPerStep / kMicroBatches };

static const uint64_t kSeed = 1;
static const float kLearningRate = 0.05f;
static const float kMomentum = 0.9f;

/* Tensors in the order in which backward finishes their gradients. */
enum { kOutBias, kOutWeight, kInBias, kInWeight, kTensors };
static const int kElements[kTensors] = {1, kHidden, kHidden, kHidden};
static const char* const kNames[kTensors] = {"out.bias", "out.weight", "in.bias", "in.weight"};

typedef struct {
  float values[kTensors][kHidden];
} tensors;

static tensors weights;
static tensors momentum;

static void initialize(void) {
  for (int h = 0; h < kHidden; ++h) {
    weights.values[kInWeight][h] = (float)(h + 1) * 0.2f;
    weights.values[kInBias][h] = (float)h * 0.37f;
    weights.values[kOutWeight][h] = 0.1f * (float)(h % 3 - 1);
  }
}

/* Returns the loss of one sample, and adds its gradient: y = sum_h out_h * tanh(in_h * x + bias_h) + bias. */
static double learn(float x, float target, tensors* gradient) {
  float hidden[kHidden];
  float y = weights.values[kOutBias][0];
  for (int h = 0; h < kHidden; ++h) {
    hidden[h] = tanhf(weights.values[kInWeight][h] * x + weights.values[kInBias][h]);
    y += weights.values[kOutWeight][h] * hidden[h];
  }
  const float error = (y - target) / kPerMicroBatch;
  gradient->values[kOutBias][0] += error;
  for (int h = 0; h < kHidden; ++h) {
    gradient->values[kOutWeight][h] += error * hidden[h];
    const float back = error * weights.values[kOutWeight][h] * (1.0f - hidden[h] * hidden[h]);
    gradient->values[kInBias][h] += back;
    gradient->values[kInWeight][h] += back * x;
  }
  return 0.5 * (y - target) * (y - target);
}

static void take_longer(long milliseconds) {
  const struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  if (milliseconds > 0) nanosleep(&pause, NULL);
}

static rm_status compute(rm_run* run, int64_t step, int32_t v, long milliseconds) {
  int64_t indices[kPerMicroBatch];
  const int64_t count = rm_samples(kSeed, kSamples, kSamplesPerStep, kMicroBatches, step, v, indices);
  tensors gradient;
  memset(&gradient, 0, sizeof gradient);
  double loss = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float x = (float)indices[i] / kSamples * 6.2831853f;
    loss += learn(x, sinf(x), &gradient) / (double)count;
  }
  take_longer(milliseconds);
  for (int32_t tensor = 0; tensor < kTensors; ++tensor) {
    const rm_status added = rm_add(run, tensor, gradient.values[tensor]);
    if (added != RM_OK) return added;
  }
  return rm_end_micro_batch(run, loss);
}

static rm_status take_step(rm_run* run, const rm_event* event, long milliseconds) {
  for (int32_t v = event->first; v < event->end; ++v) {
    rm_status status = rm_begin_micro_batch(run, v);
    if (status == RM_SKIP) continue;
    if (status == RM_OK) status = compute(run, event->step, v, milliseconds);
    if (status != RM_OK) return status;
  }
  rm_step_result result = {.size = sizeof result};
  const rm_status reduced = rm_reduce(run, &result);
  if (reduced != RM_OK) return reduced;
  for (int32_t tensor = 0; tensor < kTensors; ++tensor) {
    float gradient[kHidden];
    const rm_status read = rm_gradient(run, tensor, gradient);
    if (read != RM_OK) return read;
    for (int i = 0; i < kElements[tensor]; ++i) {
      momentum.values[tensor][i] = kMomentum * momentum.values[tensor][i] + gradient[i];
      weights.values[tensor][i] -= kLearningRate * momentum.values[tensor][i];
    }
  }
  return rm_committed(run, kLearningRate, result.gradient_norm);
}

static rm_status describe(rm_run* run) {
  rm_array arrays[2 * kTensors];
  char names[2 * kTensors][32];
  for (int tensor = 0; tensor < kTensors; ++tensor) {
    const uint64_t bytes = sizeof(float) * (uint64_t)kElements[tensor];
    snprintf(names[tensor], sizeof names[tensor], "%s", kNames[tensor]);
    arrays[tensor] = (rm_array){names[tensor], "F32", weights.values[tensor], bytes, RM_PARAMETER};
    snprintf(names[kTensors + tensor], sizeof names[tensor], "momentum.%s", kNames[tensor]);
    arrays[kTensors + tensor] = (rm_array){names[kTensors + tensor], "F32", momentum.values[tensor], bytes, 0};
  }
  return rm_describe(run, arrays, 2 * kTensors, NULL, 0);
}

static void load(const rm_event* event) {
  for (int32_t i = 0; i < event->array_count; ++i) {
    const rm_array* array = &event->arrays[i];
    const int of_momentum = strncmp(array->name, "momentum.", 9) == 0;
    tensors* const into = of_momentum ? &momentum : &weights;
    for (int tensor = 0; tensor < kTensors; ++tensor) {
      if (strcmp(array->name + (of_momentum ? 9 : 0), kNames[tensor]) != 0) continue;
      memcpy(into->values[tensor], array->data, array->bytes);
    }
  }
}

static rm_status train(rm_run* run, int64_t steps, long milliseconds) {
  rm_tensor list[kTensors];
  for (int tensor = 0; tensor < kTensors; ++tensor) list[tensor] = (rm_tensor){kNames[tensor], kElements[tensor], 0};
  const rm_config config = {.size = sizeof config,
                            .steps = steps,
                            .micro_batches = kMicroBatches,
                            .samples_per_step = kSamplesPerStep,
                            .seed = kSeed,
                            .checkpoint_every_steps = -1};
  rm_status status = rm_join(run, &config, list, kTensors);
  while (status == RM_OK || status == RM_REPEAT) {
    rm_event event = {.size = sizeof event};
    status = rm_next(run, &event);
    if (status != RM_OK) break;
    switch (event.kind) {
      case RM_EVENT_STEP: status = take_step(run, &event, milliseconds); break;
      case RM_EVENT_DESCRIBE: status = describe(run); break;
      case RM_EVENT_LOAD: load(&event); break;
      default: return RM_OK;
    }
  }
  return status;
}

int main(int argc, char** argv) {
  int64_t steps = 2000;
  long milliseconds = 0;
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--pause-ms") == 0 && i + 1 < argc) {
      milliseconds = atol(argv[++i]);
    } else {
      steps = atoll(argv[i]);
    }
  }
  rm_run* run = NULL;
  rm_status status = rm_open(NULL, &run);
  initialize();
  if (status == RM_OK) status = train(run, steps, milliseconds);
  if (status != RM_OK) fprintf(stderr, "train: %s\n", rm_error(run));
  const int code = rm_exit_code(run);
  rm_close(run);
  return code;
}
