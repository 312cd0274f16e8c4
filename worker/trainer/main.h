// SPDX-License-Identifier: Apache-2.0

// `ringmaster-worker train`: the trainer program. An agent starts it and passes the job and the shared file
// descriptors in the environment (RINGMASTER_JOB_FILE, RINGMASTER_MEMBER, RINGMASTER_CHANNEL_FD,
// RINGMASTER_SLOT_FD, RINGMASTER_THREADS).
#pragma once

namespace ringmaster::trainer {

// Exit codes: 0 done; 64 wrong input, a restart does not help; 70 internal error; 71 too little memory; 74
// device missing, broken or of another kind than the other workers'; 75 cut off from the job.
int TrainMain(int argc, char** argv);

}  // namespace ringmaster::trainer
