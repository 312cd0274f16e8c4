/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The C interface of libringmaster to its transport alone: collective communication among processes that find
 * each other by other means, such as a process group of PyTorch. Nothing here restarts or repeats: an
 * operation either succeeds, or fails on every member that waits for it, and does not hang when a member
 * dies.
 *
 *   rm_group_open(&options, &group);
 *   address = rm_group_address(group);  ... the members exchange their addresses ...
 *   rm_group_connect(group, 1, rank, world, addresses);
 *   rm_group_all_reduce(group, data, elements, RM_FLOAT32, RM_SUM);
 *   rm_group_close(group);
 *
 * All members call the same collectives in the same order with the same sizes. Every rank holds the same bits
 * after a reduction. The order in which floats are added depends on the transport, the world and the size,
 * never on timing.
 *
 * RM_INVALID is a mistake of the caller and changes nothing. RM_FAILED: the generation has ended, buffers
 * hold garbage, and only rm_group_connect with a larger generation can continue. rm_group_error has the
 * reason.
 *
 * Threads: one thread at a time for each group, except rm_group_abort and rm_group_lost.
 */
#ifndef RINGMASTER_GROUP_H
#define RINGMASTER_GROUP_H

#include "ringmaster.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rm_group rm_group;

typedef enum rm_element { RM_FLOAT32 = 1, RM_INT32 = 2 } rm_element;
typedef enum rm_reduction { RM_SUM = 1, RM_MAX = 2 } rm_reduction;

typedef struct rm_group_options {
  uint32_t size;
  const char* transport;  /* auto | shm | ucx; NULL: auto, which is shm when all members are on one host */
  double timeout_seconds; /* 0: 60. rm_group_connect fails after this time; an operation does when all members
                             have waited in one for this long without data, or a connection is dead for this
                             long. A member that is in no operation may take as long as it likes. */
} rm_group_options;

/*
 * Creates this process's end of a group. `*out` is NULL only when memory is short; after an error,
 * rm_group_error(*out) says what is wrong, and rm_group_close(*out) frees it. `options` may be NULL.
 */
RM_API rm_status rm_group_open(const rm_group_options* options, rm_group** out);
/* Frees the group. NULL is allowed. REQUIRES: no other call uses it, also not rm_group_abort. */
RM_API void rm_group_close(rm_group* group);
/* The message of the last call that returned RM_INVALID or RM_FAILED; "" if none did. Valid until the next
 * call. */
RM_API const char* rm_group_error(const rm_group* group);
/* The address of this member, printable text without spaces. Valid until rm_group_close. */
RM_API const char* rm_group_address(const rm_group* group);

/*
 * Connects the members; addresses[r] is that of rank r. Waits until every member has called it with the same
 * arguments, except for the rank. A generation is larger than the ones before.
 */
RM_API rm_status rm_group_connect(rm_group* group, uint64_t generation, int32_t rank, int32_t world,
                                  const char* const* addresses);
/* What carries the data: "shm", "ucx:tcp", ...; "none" in a world of one. Valid until the next connect. */
RM_API const char* rm_group_transport(const rm_group* group);
/*
 * Ends every operation of `generation` and older with RM_FAILED, here and on the other members, including
 * rm_group_connect and operations that have not started. Thread-safe; never blocks.
 */
RM_API void rm_group_abort(rm_group* group, uint64_t generation);

/*
 * Returns the lowest rank from `first` whose process ran on this host and has ended; -1 otherwise. An
 * operation notices by itself when the member that it waits for dies; this sees the others, too. It cannot
 * tell a death from an orderly end. Thread-safe.
 */
RM_API int32_t rm_group_lost(const rm_group* group, int32_t first);

/* ---- collectives; sizes may be 0 ---- */

/* In place. Sums of int32 wrap. */
RM_API rm_status rm_group_all_reduce(rm_group* group, void* data, uint64_t elements, int32_t element,
                                     int32_t reduction);
/* `data` is `world` equal shares. Afterwards share `rank` holds the reduction, and the rest garbage. */
RM_API rm_status rm_group_reduce_scatter(rm_group* group, void* data, uint64_t elements, int32_t element,
                                         int32_t reduction);
/* In place on `root`; the data of the other ranks is garbage afterwards. */
RM_API rm_status rm_group_reduce(rm_group* group, void* data, uint64_t elements, int32_t element,
                                 int32_t reduction, int32_t root);
/* `data` is `world` equal shares. Rank r contributes share r. */
RM_API rm_status rm_group_all_gather(rm_group* group, void* data, uint64_t bytes);
RM_API rm_status rm_group_broadcast(rm_group* group, void* data, uint64_t bytes, int32_t root);
/* Sends share r of `in` to rank r and receives share r of `out` from it. The two do not overlap. */
RM_API rm_status rm_group_all_to_all(rm_group* group, const void* in, void* out, uint64_t bytes);
RM_API rm_status rm_group_barrier(rm_group* group);

/*
 * A transfer between two ranks; the others do not call. The n-th send to a peer matches the peer's n-th
 * receive from this rank, and has the same size. A send may wait until the peer receives.
 */
RM_API rm_status rm_group_send(rm_group* group, const void* data, uint64_t bytes, int32_t peer);
RM_API rm_status rm_group_receive(rm_group* group, void* data, uint64_t bytes, int32_t peer);

#ifdef __cplusplus
}
#endif
#endif
