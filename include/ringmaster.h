/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The C interface of libringmaster: training of your own model that loses nothing when workers die.
 *
 * A step is defined over a fixed number of micro-batches, which the workers share. The gradient of each
 * micro-batch is quantized to integers, which are summed exactly over all workers, so the result depends
 * neither on the number of workers nor on which of them computed what. Workers may die, hang, join or leave
 * at any moment: the step that was interrupted is attempted again with other shares.
 *
 * The library never calls the program. The program asks what to do next:
 *
 *   rm_open(&options, &run);
 *   rm_join(run, &config, tensors, count);
 *   for (;;) {
 *     rm_next(run, &event);
 *     RM_EVENT_DESCRIBE  rm_describe(run, ...): here are my parameters and the state of my optimizer
 *     RM_EVENT_LOAD      adopt the state that event holds
 *     RM_EVENT_STEP      for v in [event.first, event.end):
 *                          if rm_begin_micro_batch(run, v) == RM_OK:
 *                            forward, backward; rm_add(run, tensor, gradient) for each tensor
 *                            rm_end_micro_batch(run, loss)
 *                        if rm_reduce(run, &result) == RM_OK:
 *                          rm_gradient(run, tensor, gradient) for each tensor; update the parameters
 *                          rm_committed(run, learning_rate, gradient_norm)
 *                          rm_finish(run), to end early
 *     RM_EVENT_END       the job has ended
 *   }
 *   rm_close(run);
 *
 * Every function that returns rm_status may return RM_FAILED: this process cannot continue, rm_error says
 * why, and it should exit with rm_exit_code. RM_INVALID is a mistake of the caller and changes nothing.
 *
 * Threads: one thread at a time; rm_open, and rm_next when it waits, belong to the main thread, whose end the
 * agent takes for the end of the worker. rm_heartbeat, rm_leaving and the functions without a run are
 * thread-safe.
 *
 * The layout of a struct and the meaning of a value do not change while RM_ABI_VERSION is the same. Structs
 * grow at the end: the caller sets `size` to the sizeof that it was compiled with, and the library neither
 * reads nor writes beyond it.
 */
#ifndef RINGMASTER_H
#define RINGMASTER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RM_ABI_VERSION 1

#if defined(__GNUC__)
#define RM_API __attribute__((visibility("default")))
#else
#define RM_API
#endif

typedef struct rm_run rm_run;

typedef enum rm_status {
  RM_OK = 0,
  RM_REPEAT = 1,  /* the step ended without a commit: call rm_next */
  RM_SKIP = 2,    /* rm_begin_micro_batch: the sums contain this micro-batch already */
  RM_INVALID = 3, /* a wrong argument, or a call out of order: see rm_error */
  RM_FAILED = 4   /* this process cannot continue: see rm_error, rm_exit_code */
} rm_status;

typedef enum rm_numerics {
  RM_EXACT =
      0, /* sums of 32-bit integers: the result depends neither on order nor on the number of workers */
  RM_EXACT64 = 1, /* the same with 64 bits per element: more precise for hundreds of micro-batches */
  RM_FAST = 2     /* sums of floats, whose last bits depend on the number of workers */
} rm_numerics;

/* Returns RM_ABI_VERSION of the library. */
RM_API uint32_t rm_abi_version(void);
/* Returns the version of the library, such as "0.1.0". */
RM_API const char* rm_version(void);

/* ---- life of a run ---- */

typedef struct rm_options {
  uint32_t size;
  const char* transport; /* auto | shm | ucx; NULL: RINGMASTER_TRANSPORT, else auto */
} rm_options;

/*
 * Connects with the agent that started this process (`ringmaster run`, or a pod). Without one, the run is a
 * world of one worker. Call it early, on the main thread: until then the agent takes the process for one that
 * is still starting. `*out` is NULL only when memory is short; after an error, rm_error(*out) says what is
 * wrong, and rm_close(*out) frees it. `options` may be NULL.
 */
RM_API rm_status rm_open(const rm_options* options, rm_run** out);
/* Frees the run. NULL is allowed. */
RM_API void rm_close(rm_run* run);

/* The message of the last call that returned RM_INVALID or RM_FAILED; "" if none did. Valid until the next
 * call. */
RM_API const char* rm_error(const rm_run* run);
/* The code with which the process should exit after RM_FAILED or RM_EVENT_END. */
RM_API int32_t rm_exit_code(const rm_run* run);
/* Returns whether an agent started this process. */
RM_API int32_t rm_has_agent(const rm_run* run);

/* A tensor whose values are averaged over the micro-batches of a step: a gradient, or a running statistic. */
typedef struct rm_tensor {
  const char* name; /* unique */
  int64_t elements; /* of 32-bit floats; at least 1 */
  uint32_t flags;   /* 0 or RM_NOT_IN_NORM */
} rm_tensor;
#define RM_NOT_IN_NORM 1u /* the tensor is not a gradient: rm_step_result.gradient_norm leaves it out */

typedef struct rm_config {
  uint32_t size;
  int64_t steps;            /* in total */
  int32_t micro_batches;    /* per step, 1 to 65536; at least the number of workers to use all of them */
  int32_t numerics;         /* rm_numerics */
  int64_t samples_per_step; /* for reports; 0: unknown */
  uint64_t seed;            /* part of the fingerprint */
  const char* fingerprint;  /* what all workers must have in common apart from the tensors: lines of the form
                               "name: value", whose names a message about a difference has; may be NULL */
  const char* data_fingerprint;   /* the same of the data; may be NULL */
  const char* device_fingerprint; /* the same of what computes ("torch 2.15.0"); the library puts the kind of
                                     the CPU before it: its vendor and instruction sets; may be NULL */
  const char* checkpoint_folder;  /* "": none; NULL: the one of the job */
  int64_t checkpoint_every_steps; /* 0: only after the last step; -1: as the job says */
  int32_t checkpoint_keep;        /* 0: as the job says */
  int32_t reserved;
  int32_t device;         /* rm_device: the memory of gradients, and where they are summed */
  int32_t device_ordinal; /* RM_DEVICE_CUDA: the current device of this thread, as cudaGetDevice returns it */
  const char* digest_folder; /* where to record a hash of each gradient, loss and array of the state in each
                                step, for `ringmaster compare`; "": nowhere; NULL: RINGMASTER_DIGESTS.
                                Needs RM_DEVICE_HOST, and asks for RM_EVENT_DESCRIBE after each step */
} rm_config;

typedef enum rm_device {
  RM_DEVICE_HOST = 0,
  RM_DEVICE_CUDA = 1 /* needs libringmaster_cuda.so: RINGMASTER_DEVICE_PLUGIN, or next to libringmaster.so */
} rm_device;

/*
 * Joins the job. `tensors` are in the order in which backward finishes them, on every worker the same; tensor
 * i of later calls is tensors[i]. Two workers whose fingerprints differ cannot train together: the one that
 * differs from the majority is refused by name. Allocates 4 bytes per element (8 with RM_EXACT64) and a few
 * more, and touches all of it; with RM_DEVICE_CUDA as much memory of the GPU as well.
 */
RM_API rm_status rm_join(rm_run* run, const rm_config* config, const rm_tensor* tensors, int32_t count);

/*
 * RM_DEVICE_CUDA: sets the stream, a cudaStream_t, on which the program computes; at first it is the legacy
 * default stream, NULL. rm_add reads after the work that the stream has by then, and rm_gradient writes after
 * it; the work that the stream gets afterwards runs after both. So the program may change, free or read the
 * memory on the stream without waiting, and none of these functions makes the thread wait for the GPU.
 */
RM_API rm_status rm_set_stream(rm_run* run, void* stream);
/*
 * Waits until the GPU has done the work of rm_add and rm_gradient so far: for programs that do not know their
 * stream. Such a program waits for its gradients before rm_add, and calls this before it changes or frees
 * them, and before it uses what rm_gradient has written. Returns at once with RM_DEVICE_HOST.
 */
RM_API rm_status rm_synchronize(rm_run* run);

/* Ends the job with this message, for example the traceback of an error that a restart would not resolve. */
RM_API rm_status rm_fail(rm_run* run, const char* message);

/* ---- the state of the program ---- */

/* One array of the state. Its bytes must be a function of the step alone, equal on all workers. */
typedef struct rm_array {
  const char* name;
  const char* type; /* of an element, as in safetensors: F32, BF16, I64, U8, ... */
  void* data;
  uint64_t bytes;
  uint32_t flags; /* 0 or RM_PARAMETER */
} rm_array;
#define RM_PARAMETER 1u /* part of the weights, whose hash users compare */

typedef enum rm_event_kind {
  RM_EVENT_STEP = 1,     /* compute this worker's share of a step */
  RM_EVENT_DESCRIBE = 2, /* call rm_describe, then rm_next */
  RM_EVENT_LOAD = 3,     /* adopt the state in `arrays` and `meta`, then call rm_next */
  RM_EVENT_END = 4       /* the job has ended, or stops here with a checkpoint */
} rm_event_kind;

typedef struct rm_event {
  uint32_t size;
  int32_t kind;        /* rm_event_kind */
  int64_t step;        /* committed so far */
  uint64_t generation; /* of the membership; grows with each change */
  int32_t rank;
  int32_t world;
  int32_t first; /* RM_EVENT_STEP: this worker's micro-batches are [first, end) */
  int32_t end;
  int32_t attempt;        /* RM_EVENT_STEP: 0 the first time that this worker attempts the step */
  int32_t finished;       /* RM_EVENT_END: all steps are committed */
  const rm_array* arrays; /* RM_EVENT_LOAD: valid until the next rm_next */
  int32_t array_count;
  const void* meta; /* RM_EVENT_LOAD: what rm_describe was given */
  uint64_t meta_bytes;
} rm_event;

/*
 * Returns what to do next; may wait for the job, also for long. The state of the program must be what
 * rm_committed, RM_EVENT_LOAD or its start left: a step that was repeated has not changed it.
 */
RM_API rm_status rm_next(rm_run* run, rm_event* event);

/*
 * The answer to RM_EVENT_DESCRIBE. The arrays are read during later calls until the next RM_EVENT_STEP and
 * must not change before it; the structs, names and `meta` are copied. `meta` is the rest of the state, as
 * bytes of any form: equal on all workers, like the arrays.
 */
RM_API rm_status rm_describe(rm_run* run, const rm_array* arrays, int32_t count, const void* meta,
                             uint64_t meta_bytes);

/* ---- a step ---- */

/* RM_OK: compute micro-batch v now. RM_SKIP: it is in the sums. RM_REPEAT: the step was interrupted. */
RM_API rm_status rm_begin_micro_batch(rm_run* run, int32_t v);
/*
 * Adds the gradient of the current micro-batch, shape (elements), to the sums. `values` is memory of
 * rm_config.device. At most once per tensor and micro-batch; a tensor without a call adds zero. During a
 * worker's last micro-batch, tensors that are complete are reduced over the workers while the caller computes
 * the next ones. RM_REPEAT: the step was interrupted.
 */
RM_API rm_status rm_add(rm_run* run, int32_t tensor, const float* values);
/* `loss`: the mean over the samples of the micro-batch. RM_REPEAT: the step was interrupted. */
RM_API rm_status rm_end_micro_batch(rm_run* run, double loss);
/*
 * In place of rm_end_micro_batch, in all micro-batches of a step: the step is the mean by weight, such as
 * that over tokens. `loss` and what rm_add got are the mean over the micro-batch times `weight`, which is
 * finite and at least 0. A micro-batch with the weight 0 needs no rm_add. A micro-batch without rm_add of a
 * gradient may end by either function.
 */
RM_API rm_status rm_end_weighted_micro_batch(rm_run* run, double loss, double weight);

/*
 * Collective, in a step before its first micro-batch: all[i * bytes] gets what rank i passed, `bytes` of it.
 * For small values, such as hashes that workers compare: at most RM_MAX_GATHER bytes per rank. RM_REPEAT: the
 * step was interrupted.
 */
RM_API rm_status rm_gather(rm_run* run, const void* mine, uint64_t bytes, void* all);
#define RM_MAX_GATHER 65536u

typedef struct rm_step_result {
  uint32_t size;
  double loss;          /* mean over the micro-batches, by weight if they have one; equal on all workers */
  double gradient_norm; /* Euclidean, of the averaged gradient, before clipping */
  double weight;        /* sum of the weights, or the number of micro-batches; 0: loss and gradients are 0 */
} rm_step_result;

/*
 * Collective. RM_OK: all workers have the sums, and rm_gradient can read them. RM_REPEAT: the step must be
 * attempted again, because a worker was lost, or because a value exceeded the range that the sums were
 * prepared for; the first step of a run always is. RM_FAILED also when a gradient or the loss is not finite.
 */
RM_API rm_status rm_reduce(rm_run* run, rm_step_result* result);
/* Writes the mean of a tensor over the micro-batches, by weight unless it is RM_NOT_IN_NORM, shape
 * (elements), to memory of rm_config.device. REQUIRES: rm_reduce returned RM_OK. */
RM_API rm_status rm_gradient(rm_run* run, int32_t tensor, float* values);
/* The program has updated its state by this step, which now counts. The numbers are for reports. */
RM_API rm_status rm_committed(rm_run* run, double learning_rate, double gradient_norm);

/*
 * Ends the run after the last committed step, as if it were the last of rm_config.steps: early stopping. Call
 * it between rm_committed and rm_next. Every worker must do so after the same step, so it follows from values
 * that are equal on all, such as rm_step_result.loss; otherwise the job fails with a message that says so.
 * Workers that join later end, too. A later run with another number of steps continues from the checkpoint.
 */
RM_API rm_status rm_finish(rm_run* run);

/* Reports what validation samples say about the current weights; rank 0's call counts. accuracy: NaN if
 * unknown. */
RM_API rm_status rm_validated(rm_run* run, double loss, double accuracy);
/* Shows that the program makes progress within a long micro-batch. */
RM_API void rm_heartbeat(rm_run* run);
/*
 * Returns the seconds in which this worker must have left, once its agent has received SIGTERM because the
 * node is drained or preempted; a number below 0 before. It is the most: the stop of the pod may grant less
 * than the grace period of the job, and the worker does not know. RM_EVENT_END follows after the current
 * step, if the other workers can continue: until then, begin nothing that takes long. Thread-safe.
 */
RM_API double rm_leaving(const rm_run* run);

/* ---- without a run ---- */

/*
 * The samples of micro-batch v of a step (0 is the first), in the order of native jobs: every epoch is a
 * permutation keyed by (seed, epoch), and its last step takes what is left. Writes up to samples_per_step /
 * micro_batches indices and returns their number, which may be 0; -1 if an argument is out of range.
 */
RM_API int64_t rm_samples(uint64_t seed, int64_t dataset_size, int64_t samples_per_step,
                          int32_t micro_batches, int64_t step, int32_t v, int64_t* indices);
/* The seed of all random numbers of a micro-batch: a hash of (seed, step, v), for any v. */
RM_API uint64_t rm_random_seed(uint64_t seed, int64_t step, int32_t v);
/* XXH3, 64 bits. */
RM_API uint64_t rm_hash(const void* data, uint64_t bytes, uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
