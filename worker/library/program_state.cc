// SPDX-License-Identifier: Apache-2.0

#include "worker/library/program_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/hash.h"
#include "worker/compute/engine/thread_pool.h"

namespace ringmaster::library {
namespace {

constexpr size_t kPieceBytes = size_t{4} << 20;
// A state with fewer pieces is hashed in less time than threads take to start.
constexpr size_t kPiecesForThreads = 4;
// Of a received description and of one array: what a member of the same job sends is far below.
constexpr uint64_t kMaxDescription = uint64_t{1} << 30;
constexpr uint64_t kMaxArray = uint64_t{1} << 42;

std::span<const std::byte> BytesOf(const std::string& text) { return std::as_bytes(std::span(text)); }

std::vector<std::span<std::byte>> Pieces(const std::vector<StateArray>& arrays) {
  std::vector<std::span<std::byte>> pieces;
  for (const StateArray& array : arrays) {
    for (size_t begin = 0; begin < array.bytes.size(); begin += kPieceBytes)
      pieces.push_back(array.bytes.subspan(begin, std::min(kPieceBytes, array.bytes.size() - begin)));
  }
  return pieces;
}

// Returns the arrays that `description` names, filled with zeros.
struct Description {
  std::string name;
  std::string type;
  size_t bytes = 0;
  bool parameter = false;
};

Result<std::vector<Description>> ParseDescription(const Json& description) {
  const Error wrong{Code::kCorrupt, "the description of a received state is invalid"};
  if (!description.is_array()) return wrong;
  std::vector<Description> arrays;
  for (const Json& item : description) {
    if (!item.is_object() || !item.contains("name") || !item["name"].is_string() || !item.contains("type") ||
        !item["type"].is_string() || !item.contains("bytes") || !item["bytes"].is_number_unsigned() ||
        !item.contains("parameter") || !item["parameter"].is_boolean() ||
        item["bytes"].get<uint64_t>() > kMaxArray)
      return wrong;
    arrays.push_back({item["name"].get<std::string>(), item["type"].get<std::string>(),
                      item["bytes"].get<size_t>(), item["parameter"].get<bool>()});
  }
  return arrays;
}

}  // namespace

// An array is hashed by the hashes of its pieces, which threads compute side by side.
StateHashes HashState(const std::vector<StateArray>& arrays, int64_t step, int threads) {
  const std::vector<std::span<std::byte>> pieces = Pieces(arrays);
  std::vector<uint64_t> hashes_of_pieces(pieces.size());
  const auto hash_piece = [&](int64_t p, int) {
    hashes_of_pieces[static_cast<size_t>(p)] = Hash64(pieces[static_cast<size_t>(p)]);
  };
  engine::ThreadPool pool(pieces.size() < kPiecesForThreads ? 1 : threads);
  pool.Run(static_cast<int64_t>(pieces.size()), hash_piece);

  StateHashes hashes;
  hashes.others = Hash64(std::as_bytes(std::span(&step, 1)));
  size_t next = 0;
  for (const StateArray& array : arrays) {
    uint64_t& hash = array.parameter ? hashes.params : hashes.others;
    hash = Hash64(BytesOf(array.name), hash);
    const size_t count = (array.bytes.size() + kPieceBytes - 1) / kPieceBytes;
    hash = Hash64(std::as_bytes(std::span(hashes_of_pieces).subspan(next, count)), hash);
    next += count;
  }
  return hashes;
}

std::string TextOf(const StateHashes& hashes) {
  return HashHex(hashes.params) + "-" + HashHex(hashes.others);
}

StateArray& OwnedState::Add(std::string name, std::string type, size_t bytes, bool parameter) {
  return Add(std::move(name), std::move(type), std::vector<std::byte>(bytes), parameter);
}

StateArray& OwnedState::Add(std::string name, std::string type, std::vector<std::byte> memory,
                            bool parameter) {
  const size_t bytes = memory.size();
  if (memory.empty()) memory.resize(1);  // programs get a pointer for an empty array, too
  const std::span<std::byte> span(memory.data(), bytes);
  arrays.emplace_back(StateArray{std::move(name), std::move(type), span, parameter}, std::move(memory));
  return arrays.back().first;
}

std::vector<StateArray> OwnedState::views() const {
  std::vector<StateArray> views;
  for (const auto& [array, memory] : arrays) views.push_back(array);
  return views;
}

Json DescribeArrays(const std::vector<StateArray>& arrays) {
  Json description = Json::array();
  for (const StateArray& array : arrays) {
    description.push_back({{"name", array.name},
                           {"type", array.type},
                           {"bytes", static_cast<uint64_t>(array.bytes.size())},
                           {"parameter", array.parameter}});
  }
  return description;
}

Status SendState(fabric::Communicator* comm, std::span<const int32_t> sources,
                 const std::vector<StateArray>& arrays, const Json& info) {
  const auto mine = std::ranges::find(sources, comm->rank());
  CHECK(mine != sources.end());
  std::vector<int32_t> receivers;
  for (int rank = 0; rank < comm->world(); ++rank)
    if (std::ranges::find(sources, rank) == sources.end()) receivers.push_back(rank);
  const auto index = static_cast<size_t>(mine - sources.begin());
  if (index == 0) {
    const std::string head = Json{{"arrays", DescribeArrays(arrays)}, {"info", info}}.dump();
    const uint64_t size = head.size();
    for (const int32_t receiver : receivers) {
      RM_TRY(comm->Send(std::as_bytes(std::span(&size, 1)), receiver));
      RM_TRY(comm->Send(BytesOf(head), receiver));
    }
  }
  const std::vector<std::span<std::byte>> pieces = Pieces(arrays);
  for (size_t p = index; p < pieces.size(); p += sources.size())
    for (const int32_t receiver : receivers) RM_TRY(comm->Send(pieces[p], receiver));
  return Ok();
}

Result<ReceivedState> ReceiveState(fabric::Communicator* comm, std::span<const int32_t> sources) {
  uint64_t size = 0;
  RM_TRY(comm->Receive(std::as_writable_bytes(std::span(&size, 1)), sources[0]));
  if (size > kMaxDescription) return Error{Code::kCorrupt, "the header of a received state is invalid"};
  std::string text(size, ' ');
  RM_TRY(comm->Receive(std::as_writable_bytes(std::span(text)), sources[0]));
  RM_ASSIGN(Json head, ParseJson(text));
  if (!head.is_object() || !head.contains("arrays") || !head.contains("info"))
    return Error{Code::kCorrupt, "the header of a received state is invalid"};
  ReceivedState received;
  RM_ASSIGN(std::vector<Description> arrays, ParseDescription(head["arrays"]));
  for (Description& array : arrays)
    received.state.Add(std::move(array.name), std::move(array.type), array.bytes, array.parameter);
  received.info = std::move(head["info"]);
  const std::vector<std::span<std::byte>> pieces = Pieces(received.state.views());
  for (size_t p = 0; p < pieces.size(); ++p) RM_TRY(comm->Receive(pieces[p], sources[p % sources.size()]));
  return received;
}

Result<OwnedState> StateOf(checkpoint::Loaded loaded) {
  const Json& description = loaded.meta.contains("arrays") ? loaded.meta["arrays"] : Json();
  RM_ASSIGN(std::vector<Description> arrays, ParseDescription(description));
  OwnedState state;
  for (Description& array : arrays) {
    const auto part = std::ranges::find(loaded.arrays, array.name, &checkpoint::Loaded::Part::name);
    if (part == loaded.arrays.end() || part->type != array.type || part->bytes.size() != array.bytes)
      return Error{Code::kCorrupt,
                   fmt::format("{}: array {} is missing or has another size", loaded.path, array.name)};
    state.Add(std::move(array.name), std::move(array.type), std::move(part->bytes), array.parameter);
    part->name.clear();  // an array that is described twice is missing
  }
  return state;
}

}  // namespace ringmaster::library
