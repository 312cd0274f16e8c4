// SPDX-License-Identifier: Apache-2.0

// The C interface over Session: checks the arguments, converts them, and lets no exception out.

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "base/exit_codes.h"
#include "base/hash.h"
#include "include/ringmaster.h"
#include "worker/checkpoint/manifest.h"
#include "worker/data/dataset.h"
#include "worker/library/session.h"

using ringmaster::Code;
using ringmaster::Error;
using ringmaster::Result;
using ringmaster::Status;
using ringmaster::library::Config;
using ringmaster::library::Session;
using ringmaster::library::StateArray;
using ringmaster::library::Tensor;

struct rm_run {
  std::unique_ptr<Session> session;  // null: rm_open failed
  std::string error;
  int32_t exit_code = ringmaster::kExitBadInput;  // when there is no session, or it is broken
  bool broken = false;           // a call failed, and no memory was left to describe the failure
  std::vector<rm_array> arrays;  // of the last RM_EVENT_LOAD
  std::vector<std::string> types;
};

namespace {

constexpr int64_t kMaxMicroBatches = 65536;
constexpr int64_t kMaxSteps = int64_t{1} << 53;
constexpr size_t kMaxMessage = 8192;  // of rm_fail

rm_status Say(rm_run* run, rm_status status, const std::string& message) {
  run->error = message;
  return status;
}

struct Thrown {
  int32_t exit_code = ringmaster::kExitInternal;
  std::string message;
};

// Describes the exception that is handled. No exception is a mistake of the program: its exit codes let the
// job start the worker again.
Thrown CurrentException() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return {ringmaster::kExitMemory, "libringmaster: not enough memory"};
  } catch (const std::system_error& thrown) {
    // Also of threads, which need memory and a place in the limits of the container.
    if (thrown.code() == std::errc::resource_unavailable_try_again)
      return {ringmaster::kExitMemory, fmt::format("libringmaster: cannot start a thread: {}. See the limits "
                                                   "of memory and of processes of the container",
                                                   thrown.what())};
    return {ringmaster::kExitInternal, fmt::format("libringmaster: {}", thrown.what())};
  } catch (const std::exception& thrown) {
    return {ringmaster::kExitInternal, fmt::format("libringmaster: {}", thrown.what())};
  } catch (...) {
    return {ringmaster::kExitInternal, "libringmaster: an unknown exception"};
  }
}

// Fails for good when even the description of an exception has thrown. What the session holds is freed by
// rm_close.
rm_status Break(rm_run* run) noexcept {
  run->broken = true;
  run->exit_code = ringmaster::kExitMemory;
  return RM_FAILED;
}

// Runs `body`, which returns an rm_status, and turns exceptions into RM_FAILED. What the session had begun is
// not known then, so it fails for good.
template <class Body>
rm_status Guard(rm_run* run, Body body) noexcept {
  if (run == nullptr) return RM_INVALID;
  if (run->session == nullptr || run->broken) return RM_FAILED;  // rm_error has the reason
  if (run->session->failed()) return RM_FAILED;
  try {
    try {
      return body(*run->session);
    } catch (...) {
      const Thrown thrown = CurrentException();
      return Say(run, RM_FAILED, run->session->FailWith(thrown.exit_code, thrown.message).message);
    }
  } catch (...) {
    return Break(run);
  }
}

rm_status Answer(rm_run* run, const Session& session, const Error& error) {
  return Say(run, session.failed() ? RM_FAILED : RM_INVALID, error.message);
}

rm_status Answer(rm_run* run, const Session& session, const Result<Session::Verdict>& verdict) {
  if (!verdict.ok()) return Answer(run, session, verdict.error());
  return *verdict == Session::Verdict::kGo ? RM_OK : RM_REPEAT;
}

// Copies as much of `from` as the caller's version of the struct has.
template <class T>
void CopyOut(const T& from, T* to) {
  const uint32_t size = to->size;
  std::memcpy(to, &from, std::min<size_t>(size, sizeof(T)));
  to->size = size;
}

std::string Text(const char* text) { return text == nullptr ? "" : text; }

// Returns a struct of this version, of which the caller's older version may lack the end.
template <class T>
T CopyIn(const T* from) {
  T copy{};
  if (from != nullptr) std::memcpy(&copy, from, std::min<size_t>(from->size, sizeof(T)));
  return copy;
}

std::string Lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string Upper(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

Result<Config> ConfigOf(const rm_config& given, const rm_tensor* tensors, int32_t count) {
  const auto wrong = [](const char* field, const auto& value, const char* range) {
    return Error{Code::kInvalid, fmt::format("rm_config.{}: must be {} (got {})", field, range, value)};
  };
  if (given.steps < 0 || given.steps > kMaxSteps) return wrong("steps", given.steps, "at least 0");
  if (given.micro_batches < 1 || given.micro_batches > kMaxMicroBatches)
    return wrong("micro_batches", given.micro_batches, "from 1 to 65536");
  if (given.numerics < RM_EXACT || given.numerics > RM_FAST)
    return wrong("numerics", given.numerics, "one of RM_EXACT, RM_EXACT64, RM_FAST");
  if (given.samples_per_step < 0) return wrong("samples_per_step", given.samples_per_step, "at least 0");
  if (given.checkpoint_every_steps < -1)
    return wrong("checkpoint_every_steps", given.checkpoint_every_steps, "at least -1");
  if (given.device != RM_DEVICE_HOST && given.device != RM_DEVICE_CUDA)
    return wrong("device", given.device, "RM_DEVICE_HOST or RM_DEVICE_CUDA");
  if (given.device_ordinal < 0) return wrong("device_ordinal", given.device_ordinal, "at least 0");
  if (given.checkpoint_keep < 0) return wrong("checkpoint_keep", given.checkpoint_keep, "at least 0");
  if (tensors == nullptr || count < 1) return Error{Code::kInvalid, "rm_join: at least one tensor is needed"};
  Config config;
  config.steps = given.steps;
  config.micro_batches = given.micro_batches;
  config.exact = given.numerics != RM_FAST;
  config.limbs = given.numerics == RM_EXACT64 ? 2 : 1;
  config.samples_per_step = given.samples_per_step;
  config.seed = given.seed;
  config.fingerprint = Text(given.fingerprint);
  config.data_fingerprint = Text(given.data_fingerprint);
  config.device_fingerprint = Text(given.device_fingerprint);
  if (given.device == RM_DEVICE_CUDA) config.gpu = given.device_ordinal;
  if (given.checkpoint_folder != nullptr) config.checkpoint_folder = given.checkpoint_folder;
  if (given.checkpoint_every_steps >= 0) config.checkpoint_every_steps = given.checkpoint_every_steps;
  if (given.checkpoint_keep > 0) config.checkpoint_keep = given.checkpoint_keep;
  if (given.digest_folder != nullptr) {
    config.digest_folder = given.digest_folder;
  } else if (const char* const folder = std::getenv("RINGMASTER_DIGESTS")) {
    config.digest_folder = folder;
  }
  if (!config.digest_folder.empty() && config.gpu)
    return Error{
        Code::kInvalid,
        "rm_config.digest_folder (or RINGMASTER_DIGESTS): digests are computed from gradients in the "
        "memory of the host: set rm_config.device to RM_DEVICE_HOST"};
  std::set<std::string> names;
  for (int32_t i = 0; i < count; ++i) {
    const rm_tensor& tensor = tensors[i];
    const std::string name = Text(tensor.name);
    if (name.empty() || !names.insert(name).second)
      return Error{Code::kInvalid,
                   fmt::format("tensor {}: the name \"{}\" is empty or given twice", i, name)};
    if (tensor.elements < 1 || tensor.elements > (int64_t{1} << 40))
      return Error{Code::kInvalid,
                   fmt::format("tensor {}: elements: must be at least 1 (got {})", name, tensor.elements)};
    config.tensors.push_back({name, tensor.elements, (tensor.flags & RM_NOT_IN_NORM) == 0});
  }
  return config;
}

void FillLoad(rm_run* run, const Session& session, rm_event* event) {
  run->arrays.clear();
  run->types.clear();
  for (const auto& [array, memory] : session.loaded().arrays) run->types.push_back(Upper(array.type));
  size_t index = 0;
  for (const auto& [array, memory] : session.loaded().arrays) {
    const std::string& type = run->types[index++];
    if (array.name == ringmaster::library::kMeta) {
      event->meta = array.bytes.data();
      event->meta_bytes = array.bytes.size();
    } else if (!array.name.starts_with(ringmaster::library::kReserved)) {
      run->arrays.push_back({array.name.c_str(), type.c_str(), array.bytes.data(), array.bytes.size(),
                             array.parameter ? RM_PARAMETER : 0u});
    }
  }
  event->arrays = run->arrays.data();
  event->array_count = static_cast<int32_t>(run->arrays.size());
}

}  // namespace

extern "C" {

uint32_t rm_abi_version(void) { return RM_ABI_VERSION; }
const char* rm_version(void) { return RINGMASTER_VERSION; }

rm_status rm_open(const rm_options* options, rm_run** out) {
  if (out == nullptr) return RM_INVALID;
  *out = new (std::nothrow) rm_run;
  if (*out == nullptr) return RM_FAILED;
  rm_run* const run = *out;
  try {
    try {
      auto opened = Session::Open(Text(CopyIn(options).transport));
      if (!opened.ok()) return Say(run, RM_FAILED, opened.error().message);
      run->session = std::move(opened).value();
      return RM_OK;
    } catch (...) {
      const Thrown thrown = CurrentException();
      run->exit_code = thrown.exit_code;
      return Say(run, RM_FAILED, thrown.message);
    }
  } catch (...) {
    return Break(run);
  }
}

void rm_close(rm_run* run) { const std::unique_ptr<rm_run> owner(run); }

const char* rm_error(const rm_run* run) {
  return run == nullptr || run->broken ? "libringmaster: not enough memory" : run->error.c_str();
}

int32_t rm_exit_code(const rm_run* run) {
  if (run == nullptr || run->session == nullptr || run->broken)
    return run == nullptr ? ringmaster::kExitMemory : run->exit_code;
  return run->session->exit_code();
}

int32_t rm_has_agent(const rm_run* run) {
  return run != nullptr && run->session != nullptr && run->session->has_agent() ? 1 : 0;
}

rm_status rm_join(rm_run* run, const rm_config* config, const rm_tensor* tensors, int32_t count) {
  return Guard(run, [&](Session& session) {
    if (config == nullptr) return Say(run, RM_INVALID, "rm_join: the configuration is missing");
    if (session.joined()) return Say(run, RM_INVALID, "rm_join: the run has joined already");
    auto wanted = ConfigOf(CopyIn(config), tensors, count);
    if (!wanted.ok()) return Answer(run, session, wanted.error());
    const Status joined = session.Join(std::move(wanted).value());
    return joined.ok() ? RM_OK : Answer(run, session, joined.error());
  });
}

rm_status rm_set_stream(rm_run* run, void* stream) {
  return Guard(run, [&](Session& session) {
    if (!session.joined()) return Say(run, RM_INVALID, "rm_set_stream: call rm_join first");
    session.SetStream(stream);
    return RM_OK;
  });
}

rm_status rm_synchronize(rm_run* run) {
  return Guard(run, [&](Session& session) {
    if (!session.joined()) return Say(run, RM_INVALID, "rm_synchronize: call rm_join first");
    const Status done = session.Synchronize();
    return done.ok() ? RM_OK : Answer(run, session, done.error());
  });
}

rm_status rm_fail(rm_run* run, const char* message) {
  return Guard(run, [&](Session& session) {
    return Answer(run, session, session.Fail(Text(message).substr(0, kMaxMessage)));
  });
}

rm_status rm_next(rm_run* run, rm_event* event) {
  return Guard(run, [&](Session& session) {
    if (event == nullptr || !session.joined()) return Say(run, RM_INVALID, "rm_next: call rm_join first");
    const auto next = session.Next();
    if (!next.ok()) return Answer(run, session, next.error());
    rm_event filled{};
    filled.step = next->step;
    filled.generation = next->generation;
    filled.rank = next->rank;
    filled.world = next->world;
    filled.first = next->first;
    filled.end = next->end;
    filled.attempt = next->attempt;
    filled.finished = next->finished ? 1 : 0;
    switch (next->kind) {
      case Session::EventKind::kStep:
        filled.kind = RM_EVENT_STEP;
        break;
      case Session::EventKind::kDescribe:
        filled.kind = RM_EVENT_DESCRIBE;
        break;
      case Session::EventKind::kLoad:
        filled.kind = RM_EVENT_LOAD;
        break;
      case Session::EventKind::kEnd:
        filled.kind = RM_EVENT_END;
        break;
    }
    if (next->kind == Session::EventKind::kLoad) FillLoad(run, session, &filled);
    CopyOut(filled, event);
    return RM_OK;
  });
}

rm_status rm_describe(rm_run* run, const rm_array* arrays, int32_t count, const void* meta,
                      uint64_t meta_bytes) {
  return Guard(run, [&](Session& session) {
    if (count < 0 || (count > 0 && arrays == nullptr) || (meta_bytes > 0 && meta == nullptr))
      return Say(run, RM_INVALID, "rm_describe: an argument is missing");
    std::vector<StateArray> described;
    for (int32_t i = 0; i < count; ++i) {
      const rm_array& array = arrays[i];
      StateArray& one = described.emplace_back();
      one.name = Text(array.name);
      one.type = Lower(Text(array.type));
      one.parameter = (array.flags & RM_PARAMETER) != 0;
      one.bytes = {static_cast<std::byte*>(array.data), array.bytes};
      const size_t element = ringmaster::checkpoint::ElementBytes(one.type);
      if (element == 0 || array.bytes % element != 0 || (array.data == nullptr && array.bytes > 0))
        return Say(run, RM_INVALID,
                   fmt::format("array {}: {} bytes of type \"{}\" are not possible", one.name, array.bytes,
                               Text(array.type)));
    }
    const Status status =
        session.Describe(std::move(described), {static_cast<const char*>(meta), meta_bytes});
    return status.ok() ? RM_OK : Answer(run, session, status.error());
  });
}

rm_status rm_begin_micro_batch(rm_run* run, int32_t v) {
  return Guard(run, [&](Session& session) {
    if (session.in_step() && session.interrupted()) return RM_REPEAT;
    if (!session.in_step() || session.in_micro_batch() || session.reduced())
      return Say(run, RM_INVALID,
                 "rm_begin_micro_batch: no step is attempted, or the last micro-batch has not ended");
    const auto [first, end] = session.share();
    if (v < first || v >= end)
      return Say(
          run, RM_INVALID,
          fmt::format("rm_begin_micro_batch: {} is not in this worker's share [{}, {})", v, first, end));
    return session.BeginMicroBatch(v) == Session::Verdict::kSkip ? RM_SKIP : RM_OK;
  });
}

rm_status rm_add(rm_run* run, int32_t tensor, const float* values) {
  return Guard(run, [&](Session& session) {
    if (!session.in_micro_batch() || values == nullptr || tensor < 0 ||
        tensor >= static_cast<int32_t>(session.tensors().size()))
      return Say(run, RM_INVALID,
                 fmt::format("rm_add: no micro-batch is computed, or there is no tensor {}", tensor));
    const auto elements = static_cast<size_t>(session.tensors()[static_cast<size_t>(tensor)].elements);
    if (session.interrupted()) return RM_REPEAT;
    return Answer(run, session, session.Add(tensor, {values, elements}));
  });
}

rm_status rm_end_micro_batch(rm_run* run, double loss) {
  return Guard(run, [&](Session& session) {
    if (!session.in_micro_batch())
      return Say(run, RM_INVALID, "rm_end_micro_batch: no micro-batch is computed");
    if (session.interrupted()) return RM_REPEAT;
    return Answer(run, session, session.EndMicroBatch(loss, std::nullopt));
  });
}

rm_status rm_end_weighted_micro_batch(rm_run* run, double loss, double weight) {
  return Guard(run, [&](Session& session) {
    if (!session.in_micro_batch())
      return Say(run, RM_INVALID, "rm_end_weighted_micro_batch: no micro-batch is computed");
    if (!std::isfinite(weight) || weight < 0)
      return Say(
          run, RM_INVALID,
          fmt::format("rm_end_weighted_micro_batch: the weight is {}: it is at least 0, and finite", weight));
    if (session.interrupted()) return RM_REPEAT;
    return Answer(run, session, session.EndMicroBatch(loss, weight));
  });
}

rm_status rm_reduce(rm_run* run, rm_step_result* result) {
  return Guard(run, [&](Session& session) {
    if (!session.in_step() || session.reduced())
      return Say(run, RM_INVALID, "rm_reduce: no step is attempted");
    if (session.Incomplete())
      return Say(run, RM_INVALID, "rm_reduce: some micro-batches of this worker's share were not computed");
    const auto reduced = session.Reduce();
    if (!reduced.ok()) return Answer(run, session, reduced.error());
    if (result != nullptr)
      CopyOut(rm_step_result{0, reduced->loss, reduced->gradient_norm, reduced->weight}, result);
    return reduced->verdict == Session::Verdict::kGo ? RM_OK : RM_REPEAT;
  });
}

rm_status rm_gradient(rm_run* run, int32_t tensor, float* values) {
  return Guard(run, [&](Session& session) {
    if (!session.reduced() || values == nullptr || tensor < 0 ||
        tensor >= static_cast<int32_t>(session.tensors().size()))
      return Say(run, RM_INVALID,
                 fmt::format("rm_gradient: no sums are there, or there is no tensor {}", tensor));
    const auto elements = static_cast<size_t>(session.tensors()[static_cast<size_t>(tensor)].elements);
    const Status read = session.ReadGradient(tensor, {values, elements});
    return read.ok() ? RM_OK : Answer(run, session, read.error());
  });
}

rm_status rm_committed(rm_run* run, double learning_rate, double gradient_norm) {
  return Guard(run, [&](Session& session) {
    if (!session.reduced()) return Say(run, RM_INVALID, "rm_committed: rm_reduce has not returned RM_OK");
    const Status done = session.Commit(learning_rate, gradient_norm);
    return done.ok() ? RM_OK : Answer(run, session, done.error());
  });
}

rm_status rm_gather(rm_run* run, const void* mine, uint64_t bytes, void* all) {
  return Guard(run, [&](Session& session) {
    if (!session.in_step() || session.computed())
      return Say(run, RM_INVALID, "rm_gather: call it in a step, before its first micro-batch");
    if (mine == nullptr || all == nullptr || bytes == 0 || bytes > RM_MAX_GATHER)
      return Say(run, RM_INVALID, fmt::format("rm_gather: takes 1 to {} bytes per rank", RM_MAX_GATHER));
    if (session.interrupted()) return RM_REPEAT;
    return Answer(run, session,
                  session.Gather(std::span(static_cast<const std::byte*>(mine), bytes),
                                 std::span(static_cast<std::byte*>(all), bytes * session.world())));
  });
}

rm_status rm_finish(rm_run* run) {
  return Guard(run, [&](Session& session) {
    if (!session.joined()) return Say(run, RM_INVALID, "rm_finish: call rm_join first");
    if (!session.committed())
      return Say(run, RM_INVALID,
                 "rm_finish: call it between rm_committed and rm_next, not in a step or after one that was "
                 "interrupted");
    session.RequestFinish();
    return RM_OK;
  });
}

rm_status rm_validated(rm_run* run, double loss, double accuracy) {
  return Guard(run, [&](Session& session) {
    if (!session.joined()) return Say(run, RM_INVALID, "rm_validated: call rm_join first");
    session.Validated(loss, std::isnan(accuracy) ? std::nullopt : std::optional(accuracy));
    return RM_OK;
  });
}

void rm_heartbeat(rm_run* run) {
  if (run != nullptr && run->session != nullptr) run->session->Heartbeat();
}

double rm_leaving(const rm_run* run) {
  const auto left = run == nullptr || run->session == nullptr ? std::nullopt : run->session->TimeToLeave();
  return left ? ringmaster::ToSeconds(*left) : -1;
}

int64_t rm_samples(uint64_t seed, int64_t dataset_size, int64_t samples_per_step, int32_t micro_batches,
                   int64_t step, int32_t v, int64_t* indices) {
  if (dataset_size < 1 || samples_per_step < 1 || micro_batches < 1 ||
      samples_per_step % micro_batches != 0 || step < 0 || v < 0 || v >= micro_batches || indices == nullptr)
    return -1;
  const int64_t per_epoch = ringmaster::data::StepsPerEpoch(dataset_size, samples_per_step);
  const ringmaster::data::Cursor cursor = {step / per_epoch, step % per_epoch * samples_per_step};
  const auto samples = ringmaster::data::NextStep(cursor, samples_per_step, dataset_size);
  const auto slice = ringmaster::data::MicroBatch(samples, samples_per_step, micro_batches, v);
  for (int64_t i = slice.begin; i < slice.end; ++i)
    indices[i - slice.begin] =
        ringmaster::data::Permute(seed, cursor.epoch, dataset_size, cursor.position + i);
  return slice.end - slice.begin;
}

uint64_t rm_random_seed(uint64_t seed, int64_t step, int32_t v) {
  const uint64_t words[3] = {seed, static_cast<uint64_t>(step), static_cast<uint64_t>(v)};
  return ringmaster::Hash64(std::as_bytes(std::span(words)));
}

uint64_t rm_hash(const void* data, uint64_t bytes, uint64_t seed) {
  return ringmaster::Hash64({static_cast<const std::byte*>(data), bytes}, seed);
}

}  // extern "C"
