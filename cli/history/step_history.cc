// SPDX-License-Identifier: Apache-2.0

#include "cli/history/step_history.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <cmath>
#include <limits>

#include "base/file.h"
#include "base/json.h"

namespace ringmaster::cli {
namespace {

using rendezvous::StepRecord;

// The shortest text with the same bits.
std::string Exact(double value) { return Json(value).dump(); }

std::string Rounded(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}g}", value, digits) : "null";
}

// Returns whether the value has the type. null is a double that is not a number.
template <class T>
bool ReadNumber(const simdjson::dom::element& element, T* value) {
  if constexpr (std::is_same_v<T, double>) {
    if (!element.is_null()) return element.get(*value) == simdjson::SUCCESS;
    *value = std::numeric_limits<double>::quiet_NaN();
    return true;
  } else {
    int64_t wide = 0;
    if (element.get(wide) != simdjson::SUCCESS || !std::in_range<T>(wide)) return false;
    *value = static_cast<T>(wide);
    return true;
  }
}

// A missing member keeps the value.
template <class T>
bool ReadMember(const simdjson::dom::object& line, std::string_view key, T* value) {
  simdjson::dom::element element;
  const auto error = line[key].get(element);
  return error == simdjson::NO_SUCH_FIELD || (error == simdjson::SUCCESS && ReadNumber(element, value));
}

bool ReadObject(const simdjson::dom::object& line, StepRecord* record) {
  return ReadMember(line, "step", &record->step) && ReadMember(line, "loss", &record->loss) &&
         ReadMember(line, "lr", &record->learning_rate) &&
         ReadMember(line, "gradNorm", &record->gradient_norm) &&
         ReadMember(line, "seconds", &record->seconds) && ReadMember(line, "samples", &record->samples) &&
         ReadMember(line, "generation", &record->generation) && ReadMember(line, "workers", &record->workers);
}

bool ReadArray(const simdjson::dom::array& line, StepRecord* record) {
  const size_t size = line.size();
  if (size != 5 && size != 8) return false;
  auto value = line.begin();
  return ReadNumber(*value, &record->step) && ReadNumber(*++value, &record->loss) &&
         ReadNumber(*++value, &record->learning_rate) && ReadNumber(*++value, &record->gradient_norm) &&
         ReadNumber(*++value, &record->seconds) &&
         (size == 5 || (ReadNumber(*++value, &record->samples) && ReadNumber(*++value, &record->generation) &&
                        ReadNumber(*++value, &record->workers)));
}

}  // namespace

std::string FullStepLine(const StepRecord& record) {
  return fmt::format(
      R"({{"step":{},"loss":{},"lr":{},"gradNorm":{},"samples":{},"generation":{},"workers":{},"seconds":{}}})",
      record.step, Exact(record.loss), Exact(record.learning_rate), Exact(record.gradient_norm),
      record.samples, record.generation, record.workers, Exact(record.seconds));
}

std::string StepLineWriter::Line(const StepRecord& record) {
  const bool first = before_.workers == 0;
  const bool same = record.samples == before_.samples && record.generation == before_.generation &&
                    record.workers == before_.workers;
  before_ = record;
  const std::string loss = Exact(record.loss);
  const std::string rate = Rounded(record.learning_rate, 6);
  const std::string norm = Rounded(record.gradient_norm, 6);
  const std::string seconds = Rounded(record.seconds, 5);
  if (!first)
    return fmt::format(
        "[{},{},{},{},{}{}]", record.step, loss, rate, norm, seconds,
        same ? "" : fmt::format(",{},{},{}", record.samples, record.generation, record.workers));
  return fmt::format(
      R"({{"step":{},"loss":{},"lr":{},"gradNorm":{},"seconds":{},"samples":{},"generation":{},"workers":{}}})",
      record.step, loss, rate, norm, seconds, record.samples, record.generation, record.workers);
}

class StepLineReader::Impl {
 public:
  Result<size_t> Read(std::string_view text, std::vector<StepRecord>* records) {
    size_t read = 0;
    for (size_t end = 0; (end = text.find('\n', read)) != std::string_view::npos; read = end + 1) {
      ++number_;
      // simdjson may read a few bytes after the end of its input, so it gets a copy with room behind it.
      line_.assign(text.substr(read, end - read));
      line_.reserve(line_.size() + simdjson::SIMDJSON_PADDING);
      simdjson::dom::element line;
      if (parser_.parse(line_.data(), line_.size(), false).get(line) != simdjson::SUCCESS)
        return Wrong("not JSON");
      newest_.step = 0;
      newest_.loss = std::numeric_limits<double>::quiet_NaN();
      simdjson::dom::object object;
      simdjson::dom::array array;
      const bool good = (line.get(object) == simdjson::SUCCESS && ReadObject(object, &newest_)) ||
                        (line.get(array) == simdjson::SUCCESS && ReadArray(array, &newest_));
      if (!good || newest_.step <= 0) return Wrong("not a step, or a value has the wrong type");
      records->push_back(newest_);
    }
    return read;
  }

 private:
  Error Wrong(const char* what) const { return {Code::kCorrupt, fmt::format("line {}: {}", number_, what)}; }

  simdjson::dom::parser parser_;
  std::string line_;
  StepRecord newest_;
  int64_t number_ = 0;
};

StepLineReader::StepLineReader() : impl_(std::make_unique<Impl>()) {}
StepLineReader::~StepLineReader() = default;
StepLineReader::StepLineReader(StepLineReader&&) noexcept = default;

Result<size_t> StepLineReader::Read(std::string_view text, std::vector<StepRecord>* records) {
  return impl_->Read(text, records);
}

Result<std::vector<StepRecord>> ReadSteps(const std::string& path) {
  RM_ASSIGN(const std::string text, ReadFile(path));
  std::vector<StepRecord> records;
  records.reserve(text.size() / 50);
  StepLineReader reader;
  auto read = reader.Read(text, &records);
  if (!read.ok()) return read.error().In(path);
  return records;
}

}  // namespace ringmaster::cli
