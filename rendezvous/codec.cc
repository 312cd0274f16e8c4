// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/json.h"
#include "rendezvous/field_text.h"

namespace ringmaster::rendezvous {
namespace {

// ---- the field tables: one Visit per struct serves both directions
// ------------------------------------------------

template <class V>
void Visit(V& v, Hello& m) {
  v.Name("job", m.job), v.Name("pod", m.pod), v.Name("agent", m.agent), v.Secret("secret", m.secret);
  v.Count("attempt", m.attempt);
  // Agents of earlier releases do not send these.
  v.Optional("slot", m.slot), v.Optional("node", m.node), v.Optional("role", m.role);
  v.Optional("checksPeers", m.checks_peers);
}
template <class V>
void Visit(V& v, Fingerprints& m) {
  v.Name("job", m.job), v.Name("data", m.data), v("device", m.device);
}
template <class V>
void Visit(V& v, Join& m) {
  v.Name("member", m.member), v.Address("address", m.address), v("fingerprints", m.fingerprints);
  v.Optional("newest", m.newest);
}
template <class V>
void Visit(V& v, MemberStatus& m) {
  v("generation", m.generation), v.Name("member", m.member), v("hasState", m.has_state),
      v.Count("step", m.step);
  v("canRollBack", m.can_roll_back), v("paramsHash", m.params_hash), v("optimizerHash", m.optimizer_hash);
  v.Count("checkpointStep", m.checkpoint_step), v("checkpointText", m.checkpoint_text);
  v.Optional("looking", m.looking);
  v.Optional("undoParamsHash", m.undo_params_hash), v.Optional("undoOptimizerHash", m.undo_optimizer_hash);
}
template <class V>
void Visit(V& v, Down& m) {
  v.Name("member", m.member), v.Name("evidence", m.evidence), v("exitCode", m.exit_code);
  v("message", m.message);
}
template <class V>
void Visit(V& v, OperationFailed& m) {
  v("generation", m.generation), v.Name("member", m.member), v("message", m.message);
  v("permanent", m.permanent), v.OptionalList("unreachable", m.unreachable, kMaxMembers);
  v.Optional("diverged", m.diverged);
}
template <class V>
void Visit(V& v, Leave& m) {
  v("reason", m.reason);
}
template <class V>
void Visit(V& v, StepRecord& m) {
  v.Count("step", m.step), v("loss", m.loss), v("lr", m.learning_rate), v("gradNorm", m.gradient_norm);
  v.Count("samples", m.samples), v("generation", m.generation), v("workers", m.workers),
      v("seconds", m.seconds);
}
template <class V>
void Visit(V& v, ValidationResult& m) {
  v.Count("step", m.step), v("loss", m.loss), v("accuracy", m.accuracy);
}
template <class V>
void Visit(V& v, Progress& m) {
  v.List("records", m.records, kMaxRecords), v.Count("totalSteps", m.total_steps);
  v.Count("checkpointStep", m.checkpoint_step), v("checkpointFailure", m.checkpoint_failure);
  v("note", m.note), v.Name("transport", m.transport);
  v("validation", m.validation), v("damagedCheckpoint", m.damaged_checkpoint);
  v.Count("secondsLeft", m.seconds_left);
}
template <class V>
void Visit(V& v, Done& m) {
  v("finished", m.finished), v.Count("step", m.step), v("loss", m.loss),
      v("validationLoss", m.validation_loss);
  v("validationAccuracy", m.validation_accuracy), v.Name("weightsHash", m.weights_hash);
  v.Name("optimizerHash", m.optimizer_hash), v("saved", m.saved);
}
template <class V>
void Visit(V& v, Fatal& m) {
  v("exitCode", m.exit_code), v("message", m.message), v.Name("member", m.member), v("joined", m.joined);
}
template <class V>
void Visit(V& v, BusyTime& m) {
  v("generation", m.generation), v.Count("step", m.step), v.Count("steps", m.steps);
  v("seconds", m.seconds), v("longest", m.longest), v("microBatches", m.micro_batches);
}
template <class V>
void Visit(V& v, Ping& m) {
  v("busy", m.busy);
}
template <class V>
void Visit(V&, Bye&) {}
template <class V>
void Visit(V& v, Facts& m) {
  v.Name("device", m.device), v.Name("driver", m.driver), v.Name("nic", m.nic);
  v.List("deviceFaults", m.device_faults, kMaxDeviceFaults);
}
template <class V>
void Visit(V& v, Welcome& m) {
  v.Name("job", m.job), v.Optional("shared", m.shared);
}
template <class V>
void Visit(V& v, Prepare& m) {
  v("generation", m.generation), v("urgency", m.urgency), v("stop", m.stop);
  v("findCheckpoint", m.find_checkpoint);
}
template <class V>
void Visit(V& v, Member& m) {
  v.Name("id", m.id), v.Name("pod", m.pod), v.Address("address", m.address);
  v.Optional("role", m.role), v.Key("key", m.key), v.Life("joined", m.joined);
}
template <class V>
void Visit(V& v, NewGeneration& m) {
  v("generation", m.generation), v.List("members", m.members, kMaxMembers);
  v.List("sources", m.sources, kMaxMembers), v.Count("startStep", m.start_step), v("stop", m.stop);
  v("paramsHash", m.params_hash), v("optimizerHash", m.optimizer_hash);
  v("fetchFirst", m.fetch_first), v("loader", m.loader), v.Count("checkpointFloor", m.checkpoint_floor);
}
template <class V>
void Visit(V& v, Evict& m) {
  v.Name("member", m.member), v("reason", m.reason), v("refused", m.refused);
}
template <class V>
void Visit(V& v, Exit& m) {
  v("code", m.code), v("reason", m.reason), v.Optional("finished", m.finished);
  v.Optional("afterProgram", m.after_program);
}
template <class V>
void Visit(V& v, RankCount& m) {
  v("size", m.size), v("rank", m.rank), v("count", m.count);
}
template <class V>
void Visit(V& v, ProgramState& m) {
  v("phase", m.phase), v("generation", m.generation), v("rank", m.rank), v("world", m.world);
  v.Address("address", m.address), v("exitCode", m.exit_code), v.Name("evidence", m.evidence);
  v("message", m.message), v.Count("endedMicros", m.ended_us);
  v.Life("life", m.life), v.Key("key", m.key), v.OptionalList("ranks", m.ranks, kMaxRankCounts);
  v.Life("openRanks", m.open_ranks), v.Life("version", m.version), v.Optional("survivors", m.survivors);
}
template <class V>
void Visit(V& v, StartProgram& m) {
  v("generation", m.generation), v.List("members", m.members, kMaxMembers);
  v.Life("life", m.life), v.Life("version", m.version);
}
template <class V>
void Visit(V& v, StopProgram& m) {
  v("generation", m.generation), v.Count("graceMs", m.grace_ms);
}
template <class V>
void Visit(V& v, CheckPeers& m) {
  v("number", m.number), v("step", m.step), v.OptionalList("members", m.members, kMaxMembers);
}
template <class V>
void Visit(V& v, UnreachablePeer& m) {
  v("peer", m.peer), v.Name("why", m.why);
}
template <class V>
void Visit(V& v, PeersChecked& m) {
  v("number", m.number), v("step", m.step);
  v.OptionalList("unreachable", m.unreachable, kMaxUnreachablePeers), v.Optional("failure", m.failure);
}

// In the order of Message's alternatives.
constexpr std::array<std::string_view, std::variant_size_v<Message>> kTypeNames = {
    "hello",           "join",          "status",       "down",         "leave",
    "progress",        "done",          "fatal",        "ping",         "welcome",
    "prepare",         "newGeneration", "evict",        "exit",         "facts",
    "operationFailed", "bye",           "programState", "startProgram", "stopProgram",
    "checkPeers",      "peersChecked"};

// In the order of ProgramPhase.
constexpr std::array<std::string_view, 4> kPhaseNames = {"idle", "running", "stopping", "ended"};
// In the order of CheckStep.
constexpr std::array<std::string_view, 3> kCheckStepNames = {"listen", "connect", "end"};

constexpr std::string_view kPingBody = R"({"type":"ping"})";
constexpr size_t kHeaderBytes = 4;
constexpr size_t kRouteBit = size_t{1} << 31;

// ---- values -> JSON
// -----------------------------------------------------------------------------------------

struct Writer {
  Json object = Json::object();

  template <class T>
  void operator()(const char* key, T& value) {
    object[key] = ToValue(value);
  }
  template <class T>
  void operator()(const char* key, std::optional<T>& value) {
    if (value) object[key] = ToValue(*value);
  }

  // Builds before the member existed reject nothing: they skip what they do not know.
  template <class T>
  void Optional(const char* key, T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      if (!value.empty()) object[key] = PlainName(value, kMaxNameBytes);
    } else {
      if (value != T{}) object[key] = value;
    }
  }
  // The kinds of fields differ for the reader only.
  void Name(const char* key, std::string& value) { object[key] = PlainName(value, kMaxNameBytes); }
  void Life(const char* key, int32_t& value) { Optional(key, value); }
  void Secret(const char* key, std::string& value) { object[key] = value; }
  void Key(const char* key, std::string& value) {
    if (!value.empty()) object[key] = PlainName(value, kMaxKeyBytes);
  }
  void Address(const char* key, std::string& value) { object[key] = value; }
  template <class T>
  void Count(const char* key, T& value) {
    (*this)(key, value);
  }
  template <class T>
  void List(const char* key, std::vector<T>& values, size_t limit) {
    object[key] = ToValue(values);
    if constexpr (std::is_same_v<T, std::string>)
      if (values.size() > limit)
        object[key].erase(object[key].begin() + static_cast<int>(limit), object[key].end());
  }
  template <class T>
  void OptionalList(const char* key, std::vector<T>& values, size_t) {
    if (!values.empty()) object[key] = ToValue(values);
  }

  template <class T>
  static Json ToValue(T& value) {
    if constexpr (std::is_same_v<T, double>) {
      // JSON has no NaN or infinity: encode their bits, so that every double survives the round trip.
      if (!std::isfinite(value)) return fmt::format("0x{:016x}", std::bit_cast<uint64_t>(value));
      return value;
    } else if constexpr (std::is_same_v<T, Urgency>) {
      return value == Urgency::kAbort ? "abort" : "boundary";
    } else if constexpr (std::is_same_v<T, ProgramPhase>) {
      return std::string(kPhaseNames[static_cast<size_t>(value)]);
    } else if constexpr (std::is_same_v<T, CheckStep>) {
      return std::string(kCheckStepNames[static_cast<size_t>(value)]);
    } else if constexpr (std::is_same_v<T, std::string>) {
      return CutText(value, kMaxTextBytes);
    } else if constexpr (std::is_arithmetic_v<T>) {
      return value;
    } else {
      Writer writer;
      Visit(writer, value);
      return std::move(writer.object);
    }
  }
  template <class T>
  static Json ToValue(std::vector<T>& values) {
    Json array = Json::array();
    for (T& value : values) array.push_back(ToValue(value));
    return array;
  }
};

// ---- JSON -> values
// -----------------------------------------------------------------------------------------

bool Read(const Json& json, std::string& out) {
  if (!json.is_string()) return false;
  out = json.get_ref<const std::string&>();
  return true;
}
bool Read(const Json& json, bool& out) {
  if (!json.is_boolean()) return false;
  out = json.get<bool>();
  return true;
}
bool Read(const Json& json, uint64_t& out) {
  if (!json.is_number_unsigned()) return false;
  out = json.get<uint64_t>();
  return true;
}
bool Read(const Json& json, int64_t& out) {
  if (!json.is_number_integer()) return false;
  if (json.is_number_unsigned() &&
      json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return false;
  }
  out = json.get<int64_t>();
  return true;
}
bool Read(const Json& json, int32_t& out) {
  int64_t wide = 0;
  if (!Read(json, wide) || !std::in_range<int32_t>(wide)) return false;
  out = static_cast<int32_t>(wide);
  return true;
}
bool Read(const Json& json, double& out) {
  if (json.is_number()) {
    out = json.get<double>();
    return true;
  }
  if (!json.is_string()) return false;
  const std::string& text = json.get_ref<const std::string&>();
  if (text.size() != 18 || !text.starts_with("0x")) return false;
  uint64_t bits = 0;
  for (const char c : std::string_view(text).substr(2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return false;
    bits = bits << 4 | static_cast<uint64_t>(digit);
  }
  out = std::bit_cast<double>(bits);
  return !std::isfinite(out);
}
bool Read(const Json& json, Urgency& out) {
  if (json == "abort") return out = Urgency::kAbort, true;
  if (json == "boundary") return out = Urgency::kBoundary, true;
  return false;
}
bool Read(const Json& json, ProgramPhase& out) {
  for (size_t i = 0; i < kPhaseNames.size(); ++i) {
    if (json == kPhaseNames[i]) return out = static_cast<ProgramPhase>(i), true;
  }
  return false;
}
bool Read(const Json& json, CheckStep& out) {
  for (size_t i = 0; i < kCheckStepNames.size(); ++i) {
    if (json == kCheckStepNames[i]) return out = static_cast<CheckStep>(i), true;
  }
  return false;
}

struct Reader {
  const Json& object;
  std::string error = {};  // the first wrong member, with its path
  size_t max_size = kMaxTextBytes;

  template <class T>
  void operator()(const char* key, T& value) {
    if (!error.empty()) return;
    const auto it = object.find(key);
    if (it == object.end()) {
      error = fmt::format("{}: missing", key);
    } else {
      Convert(key, *it, value);
    }
  }
  template <class T>
  void operator()(const char* key, std::optional<T>& value) {
    if (!error.empty()) return;
    const auto it = object.find(key);
    if (it == object.end() || it->is_null()) {
      value.reset();
    } else {
      Convert(key, *it, value.emplace());
    }
  }

  // A member that may be missing: `value` then keeps its default.
  void Optional(const char* key, std::string& value) {
    if (error.empty() && object.contains(key)) Name(key, value);
  }
  template <class T>
  void Optional(const char* key, T& value) {
    if (error.empty() && object.contains(key)) (*this)(key, value);
  }

  void Require(bool holds, const char* key, const char* what) {
    if (error.empty() && !holds) error = fmt::format("{}: {}", key, what);
  }
  void Name(const char* key, std::string& value) {
    (*this)(key, value);
    Require(IsPlain(value, kMaxNameBytes), key, "too long or not printable ASCII");
  }
  void Address(const char* key, std::string& value) {
    Sized(key, value, kMaxAddressBytes);
    Require(IsPlain(value, kMaxAddressBytes), key, "too long or not printable ASCII");
  }
  void Life(const char* key, int32_t& value) {
    Optional(key, value);
    Require(value >= 0 && value <= kMaxLife, key, "out of range");
  }
  void Secret(const char* key, std::string& value) { Sized(key, value, kMaxSecretBytes); }
  void Key(const char* key, std::string& value) {
    if (!error.empty() || !object.contains(key)) return;
    (*this)(key, value);
    Require(IsPlain(value, kMaxKeyBytes), key, "too long or not printable ASCII");
  }
  // -1: none.
  void Count(const char* key, int64_t& value) {
    (*this)(key, value);
    Require(value >= -1 && value <= kMaxCount, key, "out of range");
  }
  void Count(const char* key, std::optional<int64_t>& value) {
    (*this)(key, value);
    Require(!value || (*value >= -1 && *value <= kMaxCount), key, "out of range");
  }
  template <class T>
  void List(const char* key, std::vector<T>& values, size_t limit) {
    Sized(key, values, limit);
  }
  template <class T>
  void OptionalList(const char* key, std::vector<T>& values, size_t limit) {
    if (error.empty() && object.contains(key)) Sized(key, values, limit);
  }
  // `limit` applies to the members of an array, or to the bytes of a string.
  template <class T>
  void Sized(const char* key, T& value, size_t limit) {
    max_size = limit;
    (*this)(key, value);
    max_size = kMaxTextBytes;
  }

  template <class T>
  void Convert(const std::string& path, const Json& json, T& value) {
    if constexpr (requires { Read(json, value); }) {
      if (!Read(json, value)) error = fmt::format("{}: wrong type or out of range", path);
      if constexpr (std::is_same_v<T, std::string>) {
        if (value.size() > max_size)
          error = fmt::format("{}: {} bytes, the limit is {}", path, value.size(), max_size);
      }
    } else {
      if (!json.is_object()) {
        error = fmt::format("{}: must be an object", path);
        return;
      }
      Reader inner{json};
      Visit(inner, value);
      if (!inner.error.empty()) error = fmt::format("{}.{}", path, inner.error);
    }
  }
  template <class T>
  void Convert(const std::string& path, const Json& json, std::vector<T>& values) {
    if (!json.is_array()) {
      error = fmt::format("{}: must be an array", path);
      return;
    }
    if (json.size() > max_size) {
      error = fmt::format("{}: {} entries, the limit is {}", path, json.size(), max_size);
      return;
    }
    max_size = kMaxTextBytes;
    values.clear();
    values.reserve(json.size());
    for (size_t i = 0; i < json.size() && error.empty(); ++i) {
      Convert(fmt::format("{}[{}]", path, i), json[i], values.emplace_back());
    }
  }
};

template <size_t I = 0>
Result<Message> DecodeAs(size_t index, const Json& object) {
  if constexpr (I == std::variant_size_v<Message>) {
    return Error{Code::kInvalid, "type: unknown"};
  } else {
    if (I != index) return DecodeAs<I + 1>(index, object);
    std::variant_alternative_t<I, Message> value;
    Reader reader{object};
    Visit(reader, value);
    if (!reader.error.empty()) {
      return Error{Code::kInvalid, fmt::format("{}: {}", kTypeNames[I], reader.error)};
    }
    return Message(std::in_place_index<I>, std::move(value));
  }
}

}  // namespace

std::string Encode(const Message& message) {
  Writer writer;
  // Visit takes mutable references because it also serves the decoder; the encoder only reads.
  std::visit([&](const auto& m) { Visit(writer, const_cast<std::remove_cvref_t<decltype(m)>&>(m)); },
             message);
  writer.object["type"] = std::string(kTypeNames[message.index()]);
  const std::string body = DumpJson(writer.object);
  CHECK(body.size() <= kMaxFrameBytes, "a {} message of {} bytes", kTypeNames[message.index()], body.size());
  std::string frame;
  frame.reserve(4 + body.size());
  for (int shift = 24; shift >= 0; shift -= 8)
    frame.push_back(static_cast<char>(body.size() >> shift & 0xff));
  frame += body;
  return frame;
}

Result<Message> DecodeBody(std::string_view json) {
  // By far the most messages are pings.
  if (json == kPingBody) return Message(Ping{});
  RM_ASSIGN(const Json object, ParseJson(json));
  if (!object.is_object()) return Error{Code::kInvalid, "a message must be a JSON object"};
  const auto type = object.find("type");
  if (type == object.end() || !type->is_string()) return Error{Code::kInvalid, "type: missing"};
  const std::string& name = type->get_ref<const std::string&>();
  size_t index = 0;
  while (index < kTypeNames.size() && kTypeNames[index] != name) ++index;
  return DecodeAs(index, object);
}

std::string EncodeRoute(const std::vector<int32_t>& slots) {
  const int32_t last = *std::max_element(slots.begin(), slots.end());
  CHECK(last < kMaxSlots, "slot {}", last);
  std::string route(kHeaderBytes + static_cast<size_t>(last) / 8 + 1, '\0');
  route[0] = static_cast<char>(0x80);
  route[3] = static_cast<char>(route.size() - kHeaderBytes);
  for (const int32_t slot : slots) {
    char& byte = route[kHeaderBytes + static_cast<size_t>(slot) / 8];
    byte = static_cast<char>(byte | 1 << slot % 8);
  }
  return route;
}

void Decoder::Feed(std::string_view bytes) {
  if (begin_ > 0 && begin_ >= buffer_.size() / 2) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  buffer_.append(bytes);
}

Result<std::optional<std::string_view>> Decoder::NextFrame() {
  for (;;) {
    if (begin_ == buffer_.size()) {
      buffer_ = std::string();
      begin_ = 0;
    }
    const std::string_view rest = std::string_view(buffer_).substr(begin_);
    if (rest.size() < kHeaderBytes) return std::optional<std::string_view>();
    size_t length = 0;
    for (size_t i = 0; i < kHeaderBytes; ++i) length = length << 8 | static_cast<unsigned char>(rest[i]);
    const bool route = (length & kRouteBit) != 0;
    length &= ~kRouteBit;
    const size_t limit = route ? size_t{kMaxSlots} / 8 : max_frame_bytes_;
    if (length > limit || (route && (length == 0 || !next_slots_.empty()))) {
      return Error{Code::kInvalid,
                   fmt::format("{} of {} bytes: the limit is {}", route ? "route" : "frame", length, limit)};
    }
    if (rest.size() - kHeaderBytes < length) return std::optional<std::string_view>();
    begin_ += kHeaderBytes + length;
    if (!route) {
      slots_ = std::exchange(next_slots_, {});
      return std::optional<std::string_view>(rest.substr(0, kHeaderBytes + length));
    }
    for (size_t bit = 0; bit < 8 * length; ++bit) {
      if ((static_cast<unsigned char>(rest[kHeaderBytes + bit / 8]) >> bit % 8 & 1) != 0)
        next_slots_.push_back(static_cast<int32_t>(bit));
    }
    if (next_slots_.empty()) return Error{Code::kInvalid, "a route without a slot"};
  }
}

Result<std::optional<Message>> Decoder::Next() {
  RM_ASSIGN(const std::optional<std::string_view> frame, NextFrame());
  if (!frame) return std::optional<Message>();
  RM_ASSIGN(Message message, DecodeBody(frame->substr(kHeaderBytes)));
  return std::optional<Message>(std::move(message));
}

}  // namespace ringmaster::rendezvous
