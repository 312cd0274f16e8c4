// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/watch/lean_json.h"

#include <string>
#include <utility>
#include <vector>

namespace ringmaster::kube {
namespace {

// Builds the tree from the parser's events. `skip_` counts the open containers in a part that is left out.
class Builder {
 public:
  bool null() { return Add(Json()); }
  bool boolean(bool value) { return Add(value); }
  bool number_integer(Json::number_integer_t value) { return Add(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return Add(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return Add(value); }
  bool string(std::string& value) { return Add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(size_t) { return Open(Json::object()); }
  bool start_array(size_t) { return Open(Json::array()); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool key(std::string& name) {
    if (skip_ > 0) return true;
    const bool of_metadata = !keys_.empty() && keys_.back() == "metadata" && path_.size() <= 4;
    leave_out_ = of_metadata && name == "managedFields";
    key_ = std::move(name);
    return true;
  }
  bool parse_error(size_t, const std::string&, const Json::exception& error) {
    problem_ = error.what();
    return false;
  }

  Json root;
  const std::string& problem() const { return problem_; }

 private:
  Json* Place(Json value) {
    if (path_.empty()) {
      root = std::move(value);
      return &root;
    }
    Json& parent = *path_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    Json& slot = parent[key_];
    slot = std::move(value);
    return &slot;
  }
  bool Add(Json value) {
    if (skip_ > 0) return true;
    if (std::exchange(leave_out_, false)) return true;
    Place(std::move(value));
    return true;
  }
  bool Open(Json value) {
    if (skip_ > 0) {
      ++skip_;
      return true;
    }
    if (std::exchange(leave_out_, false)) {
      skip_ = 1;
      return true;
    }
    Json* place = Place(std::move(value));
    if (path_.size() >= kLeanDepth) {
      skip_ = 1;
      return true;
    }
    path_.push_back(place);
    keys_.push_back(key_);
    return true;
  }
  bool Close() {
    if (skip_ > 0) {
      --skip_;
      return true;
    }
    path_.pop_back();
    keys_.pop_back();
    return true;
  }

  std::vector<Json*> path_;        // the open containers; a parent grows only after its child is closed
  std::vector<std::string> keys_;  // the key of each of them
  std::string key_;
  std::string problem_;
  bool leave_out_ = false;
  size_t skip_ = 0;
};

}  // namespace

Result<Json> ParseLean(std::string_view text) {
  Builder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder))
    return Error{Code::kInvalid, "not valid JSON: " + builder.problem()};
  return std::move(builder.root);
}

}  // namespace ringmaster::kube
