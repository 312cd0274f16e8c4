// SPDX-License-Identifier: Apache-2.0

#include "cli/compare/compare_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <utility>

namespace ringmaster::cli {
namespace {

// As Python's package names it; a worker adds the hash of the step's samples to it.
constexpr const char* kStamp = "stamp of the data";

template <class T>
struct Record {
  const std::string* run;
  const T* digest;
};

// The records of both runs, those of the first one first.
template <class T>
std::vector<Record<T>> Together(const RunDigests& first, const std::vector<T>& of_first,
                                const RunDigests& second, const std::vector<T>& of_second) {
  std::vector<Record<T>> all;
  for (const T& digest : of_first) all.push_back({&first.name, &digest});
  for (const T& digest : of_second) all.push_back({&second.name, &digest});
  return all;
}

std::string Text(const Number& number) { return number ? fmt::format("{:.17g}", *number) : "not finite"; }

std::string Text(const std::optional<uint64_t>& hash) {
  return hash ? fmt::format("{:016x}", *hash) : "none";
}

// One line for each distinct value, with the records that have it.
template <class T, class ValueOf>
std::string Sides(const std::vector<Record<T>>& records, const ValueOf& value_of) {
  std::vector<std::pair<std::string, std::set<std::string>>> sides;
  for (const Record<T>& record : records) {
    const std::string value = value_of(*record.digest);
    auto side = std::find_if(sides.begin(), sides.end(), [&](const auto& s) { return s.first == value; });
    if (side == sides.end()) side = sides.insert(sides.end(), {value, {}});
    side->second.insert(fmt::format("{} ({})", *record.run, record.digest->worker));
  }
  std::string text;
  for (const auto& [value, who] : sides) {
    text += "\n  " + value + ":";
    for (const std::string& one : who) text += (&one == &*who.begin() ? " " : ", ") + one;
  }
  return text;
}

// Whether all records have the same value.
template <class T, class ValueOf>
bool Equal(const std::vector<Record<T>>& records, const ValueOf& value_of) {
  return std::all_of(records.begin(), records.end(), [&](const Record<T>& record) {
    return value_of(*record.digest) == value_of(*records.front().digest);
  });
}

const std::vector<std::string>& TensorsOf(const MicroBatchDigest& digest) { return *digest.tensors; }

// Returns the text of the first difference; empty: there is none.
std::string DifferenceOf(int64_t step, int64_t v, const std::vector<Record<MicroBatchDigest>>& records) {
  const std::string where = fmt::format("step {}, micro-batch {}", step, v);
  if (!Equal(records, TensorsOf))
    return fmt::format("the runs have other tensors, so their micro-batches cannot be compared ({})", where);
  const std::vector<std::string>& tensors = *records.front().digest->tensors;
  std::vector<size_t> differ;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!Equal(records, [&](const auto& digest) { return digest.gradients[i]; })) differ.push_back(i);
  const auto loss = [](const auto& digest) { return digest.loss; };
  const auto weight = [](const auto& digest) { return digest.weight; };
  const auto stamp =
      std::find_if(differ.begin(), differ.end(), [&](size_t i) { return tensors[i] == kStamp; });
  if (stamp != differ.end())
    return fmt::format("{}, in the samples:{}", where, Sides(records, [&](const auto& digest) {
                         return "samples " + Text(digest.gradients[*stamp]);
                       }));
  if (!Equal(records, weight))
    return fmt::format("{}, in the weight of the micro-batch:{}", where,
                       Sides(records, [&](const auto& d) { return "weight " + Text(weight(d)); }));
  const bool same_loss = Equal(records, loss);
  if (differ.empty() && same_loss) return "";
  if (differ.empty()) {
    return fmt::format("{}, in the loss, but in no gradient:{}", where,
                       Sides(records, [&](const auto& digest) { return "loss " + Text(loss(digest)); }));
  }
  const size_t first = differ.front();
  return fmt::format(
      "{}, in {}the gradient of {} ({} of {} tensors differ; this one is the first in the order of "
      "backward):{}",
      where, same_loss ? "" : "the loss, and in ", tensors[first], differ.size(), tensors.size(),
      Sides(records, [&](const auto& digest) {
        return fmt::format("loss {}, gradient {}", Text(loss(digest)), Text(digest.gradients[first]));
      }));
}

std::string DifferenceOf(int64_t step, const std::vector<Record<CommitDigest>>& records) {
  const std::pair<const char*, Number CommitDigest::*> fields[] = {
      {"loss of the step", &CommitDigest::loss},
      {"gradient norm", &CommitDigest::gradient_norm},
      {"learning rate", &CommitDigest::learning_rate}};
  for (const auto& [name, field] : fields) {
    const auto value = [field = field](const auto& digest) { return Text(digest.*field); };
    if (!Equal(records, value))
      return fmt::format("step {}, in the {}:{}", step, name, Sides(records, value));
  }
  return "";
}

std::string DifferenceOf(int64_t step, const std::vector<Record<StateDigest>>& records) {
  if (records.empty()) return "";
  const std::string where =
      step == 0 ? "the state before the first step" : fmt::format("the state after step {}", step);
  const auto names = [](const StateDigest& digest) {
    std::vector<std::string> all;
    for (const auto& [name, hash] : digest.arrays) all.push_back(name);
    return all;
  };
  if (!Equal(records, names))
    return fmt::format("{}, which has other arrays:{}", where, Sides(records, [](const auto& digest) {
                         return fmt::format("{} arrays", digest.arrays.size());
                       }));
  const auto& arrays = records.front().digest->arrays;
  std::vector<size_t> differ;
  for (size_t i = 0; i < arrays.size(); ++i)
    if (!Equal(records, [&](const auto& digest) { return digest.arrays[i].second; })) differ.push_back(i);
  if (differ.empty()) return "";
  const size_t first = differ.front();
  return fmt::format("{}, in {} ({} of {} arrays differ):{}", where, arrays[first].first, differ.size(),
                     arrays.size(), Sides(records, [&](const auto& digest) {
                       return "hash " + Text(std::optional(digest.arrays[first].second));
                     }));
}

class Comparer {
 public:
  Comparer(const RunDigests& first, const RunDigests& second) : first_(first), second_(second) {}

  Comparison Run() {
    std::set<int64_t> steps;
    for (const RunDigests* run : {&first_, &second_})
      for (const auto& [step, digest] : run->steps) steps.insert(step);
    for (const int64_t step : steps) {
      Compare(step, Of(first_, step), Of(second_, step));
      if (!found_.difference.empty()) break;
    }
    return std::move(found_);
  }

 private:
  static const StepDigest& Of(const RunDigests& run, int64_t step) {
    static const StepDigest none;
    const auto it = run.steps.find(step);
    return it == run.steps.end() ? none : it->second;
  }

  void Compare(int64_t step, const StepDigest& first, const StepDigest& second) {
    static const std::vector<MicroBatchDigest> none;
    std::set<int64_t> numbers;
    for (const StepDigest* of : {&first, &second})
      for (const auto& [v, records] : of->micro_batches) numbers.insert(v);
    size_t compared = 0;
    for (const int64_t v : numbers) {
      const auto of = [v](const StepDigest& digest) -> const std::vector<MicroBatchDigest>& {
        const auto it = digest.micro_batches.find(v);
        return it == digest.micro_batches.end() ? none : it->second;
      };
      found_.difference = DifferenceOf(step, v, Together(first_, of(first), second_, of(second)));
      if (!found_.difference.empty()) return;
      if (of(first).empty() || of(second).empty()) continue;
      ++compared;
      ++found_.micro_batches;
      found_.last_step = step;
    }
    found_.difference = DifferenceOf(step, Together(first_, first.commits, second_, second.commits));
    if (found_.difference.empty())
      found_.difference = DifferenceOf(step, Together(first_, first.states, second_, second.states));
    if (!found_.difference.empty()) {
      if (step > 0)
        found_.difference += fmt::format(
            "\nOf the {} micro-batches of step {}, {} are in both runs, and equal{}.", numbers.size(), step,
            compared, compared == numbers.size() ? ": so the reduction or the update differs" : "");
      return;
    }
    if (first.states.empty() || second.states.empty()) return;
    ++found_.states;
    found_.last_step = step;
  }

  const RunDigests& first_;
  const RunDigests& second_;
  Comparison found_;
};

// Equal also if both are not numbers.
bool SameNumber(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

Comparison CompareDigests(const RunDigests& first, const RunDigests& second) {
  return Comparer(first, second).Run();
}

Comparison CompareMetrics(const RecordedRun& first, const RecordedRun& second) {
  Comparison found;
  auto other = second.steps.begin();
  for (const rendezvous::StepRecord& record : first.steps) {
    while (other != second.steps.end() && other->step < record.step) ++other;
    if (other == second.steps.end() || other->step != record.step) continue;
    const std::pair<const char*, std::pair<double, double>> fields[] = {
        {"loss", {record.loss, other->loss}},
        {"gradient norm", {record.gradient_norm, other->gradient_norm}},
        {"learning rate", {record.learning_rate, other->learning_rate}}};
    for (const auto& [name, values] : fields) {
      if (SameNumber(values.first, values.second)) continue;
      found.difference = fmt::format("step {}, in the {}:\n  {:.17g}: {}\n  {:.17g}: {}", record.step, name,
                                     values.first, first.name, values.second, second.name);
      return found;
    }
    found.last_step = record.step;
  }
  return found;
}

}  // namespace ringmaster::cli
