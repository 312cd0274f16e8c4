// SPDX-License-Identifier: Apache-2.0

// `ringmaster-worker train`: started by an agent, which passes the job and the shared descriptors in the
// environment (RINGMASTER_JOB_FILE, RINGMASTER_MEMBER, RINGMASTER_CHANNEL_FD, RINGMASTER_SLOT_FD,
// RINGMASTER_THREADS).
#pragma once

namespace ringmaster::trainer {

// Exit codes: 0 done, 64 the input is wrong and no restart helps, 70 our mistake, 71 too little memory, 74
// the device is missing, broken or of another kind than the others', 75 cut off from the job.
int TrainMain(int argc, char** argv);

}  // namespace ringmaster::trainer
