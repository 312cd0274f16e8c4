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

// Missing and null read as `otherwise`.
template <class T>
bool ReadNumber(const simdjson::dom::object& line, std::string_view key, T* value) {
  simdjson::dom::element element;
  const auto error = line[key].get(element);
  if (error == simdjson::NO_SUCH_FIELD) return true;
  if constexpr (std::is_same_v<T, double>) {
    if (error == simdjson::SUCCESS && element.is_null()) {
      *value = std::numeric_limits<double>::quiet_NaN();
      return true;
    }
    return element.get(*value) == simdjson::SUCCESS;
  } else {
    int64_t wide = 0;
    if (error != simdjson::SUCCESS || element.get(wide) != simdjson::SUCCESS || !std::in_range<T>(wide))
      return false;
    *value = static_cast<T>(wide);
    return true;
  }
}

}  // namespace

std::string FullStepLine(const StepRecord& record) {
  return fmt::format(
      R"({{"step":{},"loss":{},"lr":{},"gradNorm":{},"samples":{},"generation":{},"workers":{},"seconds":{}}})",
      record.step, Exact(record.loss), Exact(record.learning_rate), Exact(record.gradient_norm),
      record.samples, record.generation, record.workers, Exact(record.seconds));
}

std::string StepLineWriter::Line(const StepRecord& record) {
  std::string line = fmt::format(R"({{"step":{},"loss":{},"lr":{},"gradNorm":{},"seconds":{})", record.step,
                                 Exact(record.loss), Rounded(record.learning_rate, 6),
                                 Rounded(record.gradient_norm, 6), Rounded(record.seconds, 5));
  if (before_.workers == 0 || record.samples != before_.samples || record.generation != before_.generation ||
      record.workers != before_.workers)
    line += fmt::format(R"(,"samples":{},"generation":{},"workers":{})", record.samples, record.generation,
                        record.workers);
  before_ = record;
  return line + "}";
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
      simdjson::dom::object line;
      if (parser_.parse(line_.data(), line_.size(), false).get(line) != simdjson::SUCCESS)
        return Wrong("not a JSON object");
      newest_.step = 0;
      newest_.loss = std::numeric_limits<double>::quiet_NaN();
      const bool good = ReadNumber(line, "step", &newest_.step) && ReadNumber(line, "loss", &newest_.loss) &&
                        ReadNumber(line, "lr", &newest_.learning_rate) &&
                        ReadNumber(line, "gradNorm", &newest_.gradient_norm) &&
                        ReadNumber(line, "seconds", &newest_.seconds) &&
                        ReadNumber(line, "samples", &newest_.samples) &&
                        ReadNumber(line, "generation", &newest_.generation) &&
                        ReadNumber(line, "workers", &newest_.workers);
      if (!good || newest_.step <= 0) return Wrong("a member has the wrong type, or there is no step");
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
  records.reserve(text.size() / 90);
  StepLineReader reader;
  auto read = reader.Read(text, &records);
  if (!read.ok()) return read.error().In(path);
  return records;
}

}  // namespace ringmaster::cli
