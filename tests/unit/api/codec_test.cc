// SPDX-License-Identifier: Apache-2.0

// FromJson(ToJson(x)) == x, over jobs drawn from the field tables.
#include "api/codec.h"

#include <gtest/gtest.h>

#include "api/fields_status.h"
#include "api/load.h"
#include "base/rng.h"

namespace ringmaster::api {
namespace {

// Returns a random value within the bounds of its field. It may violate rules over several fields; reading
// does not depend on them.
class Draw {
 public:
  explicit Draw(uint64_t seed) : rng_(seed) {}

  template <HasTable S>
  void Value(S& out, const Rules&) {
    ForEachField<S>([&](const auto& field) {
      if (field.rules.required || rng_.Chance(0.5)) Value(out.*field.member, field.rules);
    });
  }
  template <class T>
  void Value(std::optional<T>& out, const Rules& rules) {
    Value(out.emplace(), rules);
  }
  template <class T>
  void Value(std::vector<T>& out, const Rules& rules) {
    for (uint64_t n = rng_.Below(4); n > 0; --n) {
      Value(out.emplace_back(), rules);
      const bool duplicate = std::find(out.begin(), out.end() - 1, out.back()) != out.end() - 1;
      if (duplicate) out.pop_back();
    }
  }
  template <class T>
  void Value(std::map<std::string, T>& out, const Rules& rules) {
    for (uint64_t n = rng_.Below(4); n > 0; --n) {
      Value(out[fmt::format("example.com/k{}", rng_.Below(1000))], rules);
    }
  }
  void Value(bool& out, const Rules&) { out = rng_.Chance(0.5); }
  void Value(int32_t& out, const Rules& rules) { out = static_cast<int32_t>(Integer(rules)); }
  void Value(int64_t& out, const Rules& rules) { out = Integer(rules); }
  void Value(Json& out, const Rules&) {
    out = Json::object();
    for (uint64_t n = rng_.Below(4); n > 0; --n) out[Text(8)] = Any(0);
  }
  void Value(std::string& out, const Rules& rules) {
    if (rules.values != nullptr) {
      const auto values = Values(rules);
      out = values[rng_.Below(values.size())];
      return;
    }
    switch (rules.form) {
      case Form::kText:
        out = Text(static_cast<uint64_t>(std::min(rules.max_length, 40)));
        break;
      case Form::kDecimal:
        out = fmt::format("{}e-3", 1 + rng_.Below(500));
        break;
      case Form::kSlots:
        out = rng_.Chance(0.5) ? "gpu" : std::to_string(1 + rng_.Below(999));
        break;
      case Form::kAutoSeconds:
        out = rng_.Chance(0.5) ? "auto" : std::to_string(rng_.Below(1000));
        break;
      case Form::kTime:
        out = fmt::format("2026-01-02T03:04:{:02}Z", rng_.Below(60));
        break;
      case Form::kAny:
        out = Text(static_cast<uint64_t>(std::min(rules.max_length, 20)));
        break;
      case Form::kResource:
        out = fmt::format("rdma/r{}", rng_.Below(100));
        break;
      default:
        out = fmt::format("n{}", rng_.Below(100000));
        break;
    }
  }

 private:
  int64_t Integer(const Rules& rules) {
    const auto span = static_cast<uint64_t>(rules.max) - static_cast<uint64_t>(rules.min);
    if (rng_.Chance(0.2)) return rng_.Chance(0.5) ? rules.min : rules.max;
    return static_cast<int64_t>(static_cast<uint64_t>(rules.min) + rng_.Below(span));
  }
  std::string Text(uint64_t longest) {
    static constexpr const char* kPieces[] = {"a",  "Z",  "0",  " ", "é", "🙂", "\"",
                                              "\\", "\n", "\t", ":", "#", "-",    "\x7f"};
    std::string text = "x";  // required text is not empty
    for (uint64_t n = rng_.Below(longest); n > 0; --n) text += kPieces[rng_.Below(std::size(kPieces))];
    return text;
  }
  Json Any(int depth) {
    switch (rng_.Below(depth > 4 ? 5 : 7)) {
      case 0:
        return nullptr;
      case 1:
        return rng_.Chance(0.5);
      case 2:
        return static_cast<int64_t>(rng_.Next());
      case 3:
        return Text(20);
      case 4:
        return rng_.Uniform();
      case 5:
        return Json::array({Any(depth + 1), Any(depth + 1)});
      default:
        return Json{{Text(5), Any(depth + 1)}};
    }
  }

  SplitMix64 rng_;
};

TEST(Codec, WrittenJobsReadBackEqual) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    TrainingJob job;
    Draw(seed).Value(job, {});
    const Json json = ToJson(job);
    const Loaded loaded = FromJson(json);
    ASSERT_TRUE(loaded.job == job) << DumpJson(json) << "\n" << DumpJson(ToJson(loaded.job));
    // The text form loses nothing either, except the status, which is not read from files.
    const Loaded as_text = LoadYaml(DumpJson(json));
    job.status = {};
    ASSERT_TRUE(as_text.job == job) << DumpJson(json);
  }
}

TEST(Codec, WritesNoDefaults) {
  TrainingJob job;
  job.metadata.name = "a";
  job.spec.framework = "pytorch";
  job.spec.workers.replicas = 1;
  EXPECT_EQ(DumpJson(ToJson(job)),
            R"({"apiVersion":"ringmaster.dev/v1alpha1","kind":"TrainingJob","metadata":{"name":"a"},)"
            R"("spec":{"framework":"pytorch","workers":{"replicas":1}}})");
  job.spec.network.rdma.emplace();  // given, though empty
  EXPECT_TRUE(ToJson(job)["spec"]["network"]["rdma"].is_object());
}

TEST(Codec, ReadsTheStatusOfANewerVersion) {
  const Json json = {{"apiVersion", "ringmaster.dev/v1alpha1"},
                     {"kind", "TrainingJob"},
                     {"metadata", {{"name", "a"}}},
                     {"spec",
                      {{"framework", "jax"},
                       {"launch", {{"kind", "none"}}},
                       {"workers", {{"replicas", 1}, {"template", Json::object()}}}}},
                     {"status",
                      {{"phase", "Running"},
                       {"attempt", 3},
                       {"newer", 1},
                       {"conditions", {{{"type", "Ready"}, {"status", "True"}, {"newer", Json::array()}}}},
                       {"lastFailure", {{"pod", "a-1-0"}, {"exitCode", 137}}},
                       {"goodput", {{"ratio", "0.98"}, {"lostSeconds", {{"recovery", 12}}}}}}}};
  const Loaded loaded = FromJson(json);
  for (const Problem& problem : loaded.problems) ADD_FAILURE() << problem.ToString();
  const Status& status = loaded.job.status;
  EXPECT_EQ(status.phase, "Running");
  EXPECT_EQ(status.attempt, 3);
  EXPECT_EQ(status.conditions.at(0).type, "Ready");
  EXPECT_EQ(status.lastFailure.value_or(LastFailure{}).exitCode, 137);
  EXPECT_EQ(status.goodput.value_or(Goodput{}).lostSeconds.at("recovery"), 12);
  EXPECT_TRUE(FromJson(ToJson(loaded.job)).job == loaded.job);
}

}  // namespace
}  // namespace ringmaster::api
