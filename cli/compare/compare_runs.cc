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

// Also what numbers are compared by, so that the values that are not finite are, too.
std::string Text(const Number& number) {
  if (!number) return "none";
  return std::isnan(*number) ? "nan" : fmt::format("{:.17g}", *number);
}

std::string Text(const std::optional<uint64_t>& hash) {
  return hash ? fmt::format("{:016x}", *hash) : "none";
}

template <class T>
std::string Who(const Record<T>& record) {
  return fmt::format("{} ({})", *record.run, record.digest->source->worker);
}

// Names the files of a run whose own records differ: its workers do, or it is not one run.
template <class T, class ValueOf>
std::string WithinOneRun(const std::vector<Record<T>>& records, const ValueOf& value_of) {
  for (const Record<T>& a : records)
    for (const Record<T>& b : records)
      if (a.run == b.run && value_of(*a.digest) != value_of(*b.digest))
        return fmt::format(
            "\nRecords of {} differ from each other: {} and {}. If the program was changed between them, "
            "record "
            "each run in a new folder.",
            *a.run, a.digest->source->file, b.digest->source->file);
  return "";
}

// One line for each distinct value, with the records that have it.
template <class T, class ValueOf>
std::string Sides(const std::vector<Record<T>>& records, const ValueOf& value_of) {
  std::vector<std::pair<std::string, std::set<std::string>>> sides;
  for (const Record<T>& record : records) {
    const std::string value = value_of(*record.digest);
    auto side = std::find_if(sides.begin(), sides.end(), [&](const auto& s) { return s.first == value; });
    if (side == sides.end()) side = sides.insert(sides.end(), {value, {}});
    side->second.insert(Who(record));
  }
  std::string text;
  for (const auto& [value, who] : sides) {
    text += "\n  " + value + ":";
    for (const std::string& one : who) text += (&one == &*who.begin() ? " " : ", ") + one;
  }
  return text + WithinOneRun(records, value_of);
}

// Whether all records have the same value.
template <class T, class ValueOf>
bool Equal(const std::vector<Record<T>>& records, const ValueOf& value_of) {
  return std::all_of(records.begin(), records.end(), [&](const Record<T>& record) {
    return value_of(*record.digest) == value_of(*records.front().digest);
  });
}

// Names the first few.
std::string Listed(const std::vector<std::string>& names) {
  constexpr size_t kMost = 4;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() <= kMost ? text : fmt::format("{} and {} more", text, names.size() - kMost);
}

std::vector<std::string> Without(const std::vector<std::string>& names,
                                 const std::vector<std::string>& other) {
  const std::set<std::string> known(other.begin(), other.end());
  std::vector<std::string> left;
  for (const std::string& name : names)
    if (known.count(name) == 0) left.push_back(name);
  return left;
}

// Lines with the names that one of two records lacks, or else where their order begins to differ.
// REQUIRES: the records have not all the same names.
template <class T, class NamesOf>
std::string OtherNames(const std::vector<Record<T>>& records, const NamesOf& names_of) {
  const Record<T>& a = records.front();
  const std::vector<std::string> of_a = names_of(*a.digest);
  for (const Record<T>& b : records) {
    const std::vector<std::string> of_b = names_of(*b.digest);
    if (of_a == of_b) continue;
    std::string text;
    if (const auto only = Without(of_a, of_b); !only.empty())
      text += fmt::format("\n  only in {}: {}", Who(a), Listed(only));
    if (const auto only = Without(of_b, of_a); !only.empty())
      text += fmt::format("\n  only in {}: {}", Who(b), Listed(only));
    size_t i = 0;
    while (i < of_a.size() && i < of_b.size() && of_a[i] == of_b[i]) ++i;
    const auto at = [i](const std::vector<std::string>& names) {
      return i < names.size() ? names[i] : "none";
    };
    if (text.empty())
      text = fmt::format("\n  number {} is {}: {}\n  number {} is {}: {}", i, at(of_a), Who(a), i, at(of_b),
                         Who(b));
    return text;
  }
  return "";
}

const std::vector<std::string>& TensorsOf(const MicroBatchDigest& digest) { return *digest.tensors; }

// Returns the text of the first difference; empty: there is none.
std::string DifferenceOf(int64_t step, int64_t v, const std::vector<Record<MicroBatchDigest>>& records) {
  const std::string where = fmt::format("step {}, micro-batch {}", step, v);
  if (!Equal(records, TensorsOf))
    return fmt::format("the tensors that the program registered, at {}:{}", where,
                       OtherNames(records, TensorsOf));
  const std::vector<std::string>& tensors = *records.front().digest->tensors;
  std::vector<size_t> differ;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!Equal(records, [&](const auto& digest) { return digest.gradients[i]; })) differ.push_back(i);
  const auto loss = [](const auto& digest) { return Text(digest.loss); };
  const auto weight = [](const auto& digest) { return Text(digest.weight); };
  const auto stamp =
      std::find_if(differ.begin(), differ.end(), [&](size_t i) { return tensors[i] == kStamp; });
  if (stamp != differ.end())
    return fmt::format("{}, in the samples:{}", where, Sides(records, [&](const auto& digest) {
                         return "samples " + Text(digest.gradients[*stamp]);
                       }));
  if (!Equal(records, weight))
    return fmt::format("{}, in the weight of the micro-batch:{}", where,
                       Sides(records, [&](const auto& d) { return "weight " + weight(d); }));
  const bool same_loss = Equal(records, loss);
  if (differ.empty() && same_loss) return "";
  if (differ.empty()) {
    return fmt::format("{}, in the loss, but in no gradient:{}", where,
                       Sides(records, [&](const auto& digest) { return "loss " + loss(digest); }));
  }
  const size_t first = differ.front();
  std::vector<std::string> others;
  for (const size_t i : differ)
    if (i != first) others.push_back(tensors[i]);
  return fmt::format(
      "{}, in {}the gradient of {} ({} of {} tensors differ{}):{}", where,
      same_loss ? "" : "the loss, and in ", tensors[first], differ.size(), tensors.size(),
      others.empty() ? "" : ", also " + Listed(others), Sides(records, [&](const auto& digest) {
        return fmt::format("loss {}, gradient {}", loss(digest), Text(digest.gradients[first]));
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
    return fmt::format("{}, which has other arrays:{}", where, OtherNames(records, names));
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
      if (!found_.difference.empty()) return std::move(found_);
    }
    if (micro_batches_of_one_ + states_of_one_ > 0)
      found_.unpaired = fmt::format(
          "{} micro-batches and {} states are in one run only: {} has steps {}, and {} {}",
          micro_batches_of_one_, states_of_one_, first_.name, Range(first_), second_.name, Range(second_));
    return std::move(found_);
  }

 private:
  static std::string Range(const RunDigests& run) {
    if (run.steps.empty()) return "none";
    return fmt::format("{} to {}", run.steps.begin()->first, run.steps.rbegin()->first);
  }
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
      if (of(first).empty() || of(second).empty()) {
        ++micro_batches_of_one_;
        continue;
      }
      ++compared;
      ++found_.micro_batches;
      found_.last_step = step;
    }
    found_.difference = DifferenceOf(step, Together(first_, first.commits, second_, second.commits));
    if (found_.difference.empty())
      found_.difference = DifferenceOf(step, Together(first_, first.states, second_, second.states));
    if (!found_.difference.empty()) {
      // Without the state before the step, an earlier one may have brought the difference.
      const bool all = compared == numbers.size() && equal_state_ == step - 1;
      if (!numbers.empty())
        found_.difference += fmt::format(
            "\nOf the {} micro-batches of step {}, {} are in both runs, and equal{}.", numbers.size(), step,
            compared, all ? ": so the reduction or the update differs" : "");
      return;
    }
    if (first.states.empty() || second.states.empty()) {
      states_of_one_ += first.states.empty() == second.states.empty() ? 0 : 1;
      return;
    }
    equal_state_ = step;
    ++found_.states;
    found_.last_step = step;
  }

  const RunDigests& first_;
  const RunDigests& second_;
  Comparison found_;
  int64_t micro_batches_of_one_ = 0;
  int64_t states_of_one_ = 0;
  int64_t equal_state_ = -1;  // the newest step whose state both runs have; -1: none
};

// Equal also if both are not numbers.
bool SameNumber(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

Comparison CompareDigests(const RunDigests& first, const RunDigests& second) {
  return Comparer(first, second).Run();
}

Comparison CompareMetrics(const RecordedRun& first, const RecordedRun& second) {
  Comparison found;
  std::set<int64_t> steps[2];
  for (const auto& record : first.steps) steps[0].insert(record.step);
  for (const auto& record : second.steps) steps[1].insert(record.step);
  size_t common = 0;
  for (const int64_t step : steps[0]) common += steps[1].count(step);
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
  const auto range = [](const std::set<int64_t>& of) {
    return of.empty() ? "none" : fmt::format("{} to {}", *of.begin(), *of.rbegin());
  };
  if (const size_t unpaired = steps[0].size() + steps[1].size() - 2 * common; unpaired > 0)
    found.unpaired = fmt::format("{} steps are in one run only: {} has steps {}, and {} {}", unpaired,
                                 first.name, range(steps[0]), second.name, range(steps[1]));
  return found;
}

}  // namespace ringmaster::cli
