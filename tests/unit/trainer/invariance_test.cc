// SPDX-License-Identifier: Apache-2.0

// Checks the guarantee of exact numerics, with real models over the real fabric: the bits of the state after
// n steps depend only on the job, not on the number of ranks or threads, nor on the membership history.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/sanitized.h"
#include "tests/unit/trainer/ranks.h"
#include "worker/agent/trainer/shared_page_memory.h"

namespace ringmaster::trainer {
namespace {

class Invariance : public testing::TestWithParam<engine::ModelKind> {
 protected:
  RunConfig Config() {
    return GetParam() == engine::ModelKind::kGpt ? Gpt(&folder_) : Image(&folder_, GetParam());
  }
  TempFolder folder_;
};

TEST_P(Invariance, BitsDoNotDependOnTheWorldSize) {
  const RunConfig config = Config();
  const Outcome alone = Train(config, 1, 12);
  EXPECT_LT(alone.losses.back(), alone.losses.front());
  for (const int world : {2, 3, 4, 6, 12}) EXPECT_EQ(Train(config, world, 12), alone) << "world " << world;
}

TEST_P(Invariance, BitsDoNotDependOnTheNumberOfThreads) {
  RunConfig config = Config();
  const Outcome one = Train(config, 1, 6);
  for (const int threads : {2, 3}) {
    config.model.threads = threads;
    EXPECT_EQ(Train(config, 2, 6), one) << "threads " << threads;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Invariance,
                         testing::Values(engine::ModelKind::kGpt, engine::ModelKind::kMlp,
                                         engine::ModelKind::kCnn));

// Parameter: whether sums have two limbs.
class EitherSum : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Membership, EitherSum, testing::Values(false, true));

TEST_P(EitherSum, JoinLossAndRollBackDoNotChangeTheBits) {
  TempFolder folder;
  RunConfig config = Gpt(&folder);
  config.wide_sums = GetParam();
  const Outcome reference = Train(config, 1, 20);

  Ranks ranks;
  for (int r = 0; r < 2; ++r) ranks.push_back(std::make_unique<Rank>(config));
  Connect(&ranks, 1);
  OnAll(&ranks, [](Rank* rank) {
    if (rank->comm->rank() == 0) rank->Initialise();
    ASSERT_TRUE(
        ShareState(rank->comm.get(), std::vector<int32_t>{0}, rank->state.get(), &rank->records).ok());
    rank->Steps(5);
  });
  // A third joins; both others are sources.
  ranks.push_back(std::make_unique<Rank>(config));
  Connect(&ranks, 2);
  OnAll(&ranks, [](Rank* rank) {
    const bool joins = rank->comm->rank() == 2;
    if (!joins) rank->records = {{.step = 4, .loss = 0.5}, {.step = 5, .loss = 0.25}};
    ASSERT_TRUE(
        ShareState(rank->comm.get(), std::vector<int32_t>{0, 1}, rank->state.get(), &rank->records).ok());
    // It can report the steps before its join after all members that computed them have died.
    ASSERT_EQ(rank->records.size(), 2U);
    EXPECT_EQ(rank->records[1].step, 5);
    EXPECT_EQ(rank->records[1].loss, 0.25);
    rank->Steps(11);
  });
  // The first is lost; one survivor had committed a step more and rolls it back.
  ranks.erase(ranks.begin());
  ranks[1]->state->RollBack();
  ranks[0]->state->RollBack();
  ASSERT_EQ(ranks[0]->state->step(), 10);
  Connect(&ranks, 3);
  OnAll(&ranks, [](Rank* rank) { rank->Steps(20); });
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->outcome.params, reference.params);
    EXPECT_EQ(rank->outcome.optimizer, reference.optimizer);
  }
}

constexpr size_t kPieceBytes = 1024;  // of each array; so small that a join takes several steps

// Two members join while the others train: the bits are those of an undisturbed run, and a member that has
// just fetched the state can be the source of the next one. A validation during the transfer does not wait
// for its end, and has the bits of an undisturbed one.
TEST_P(Invariance, JoiningWhileOthersTrainDoesNotChangeTheBits) {
  RunConfig config = Config();
  const Outcome reference = Train(config, 1, 24);
  const Outcome after_four = Train(config, 1, 4);
  Ranks ranks;
  for (int r = 0; r < 2; ++r) ranks.push_back(std::make_unique<Rank>(config));
  Connect(&ranks, 1);
  OnAll(&ranks, [](Rank* rank) {
    if (rank->comm->rank() == 0) rank->Initialise();
    ASSERT_TRUE(
        ShareState(rank->comm.get(), std::vector<int32_t>{0}, rank->state.get(), &rank->records).ok());
    rank->Steps(3);
  });
  for (int r = 0; r < 2; ++r) ranks.push_back(std::make_unique<Rank>(config));
  Connect(&ranks, 2);
  OnAll(&ranks, [&after_four](Rank* rank) {
    const bool joins = rank->comm->rank() >= 2;
    if (!joins) rank->records = {{.step = 3, .loss = 0.25}};
    rank->join = JoinTransfer::Begin(rank->comm.get(), std::vector<int32_t>{0, 1}, kPieceBytes,
                                     rank->state.get(), &rank->records)
                     .value();
    EXPECT_EQ(rank->records.size(), 1U);
    EXPECT_EQ(rank->state->present(), !joins);
    EXPECT_EQ(rank->join->owner(), joins ? -1 : rank->comm->rank());
    rank->Steps(4);
    const int64_t sent = rank->join->bytes_sent();
    const auto validation = rank->Validated();
    ASSERT_TRUE(validation.ok());
    EXPECT_EQ(validation->loss, after_four.validation);
    EXPECT_EQ(rank->join->bytes_sent(), sent);
    EXPECT_FALSE(rank->join->done());
    rank->Steps(12);
    EXPECT_GT(rank->joining_steps, 1);
    // How many pieces a step takes depends on their speed: nine steps are too few for instrumented code.
    if (!rank->join->done()) {
      ASSERT_TRUE(rank->stepper->FinishJoin({rank->comm.get()}, rank->join.get()).ok());
    }
    EXPECT_TRUE(rank->join->done());
    EXPECT_EQ(rank->join->owners(), 4);
    ASSERT_TRUE(rank->state->present());
  });
  // The first two are lost. The next one joins with a transfer that ends between two steps.
  ranks.erase(ranks.begin(), ranks.begin() + 2);
  ranks.push_back(std::make_unique<Rank>(config));
  Connect(&ranks, 3);
  OnAll(&ranks, [](Rank* rank) {
    rank->join = JoinTransfer::Begin(rank->comm.get(), std::vector<int32_t>{0, 1}, kPieceBytes,
                                     rank->state.get(), &rank->records)
                     .value();
    ASSERT_TRUE(rank->stepper->FinishJoin({rank->comm.get()}, rank->join.get()).ok());
    EXPECT_TRUE(rank->join->done());
    rank->Steps(24);
  });
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->outcome.params, reference.params);
    EXPECT_EQ(rank->outcome.optimizer, reference.optimizer);
    EXPECT_EQ(rank->state->StateHashes().value(), ranks[0]->state->StateHashes().value());
  }
}

TEST(Membership, AJoiningMemberRefusesAStateThatChangedDuringItsTransfer) {
  TempFolder folder;
  const RunConfig config = Gpt(&folder);
  Ranks ranks;
  for (int r = 0; r < 2; ++r) ranks.push_back(std::make_unique<Rank>(config));
  Connect(&ranks, 1);
  OnAll(&ranks, [](Rank* rank) {
    const bool joins = rank->comm->rank() == 1;
    if (!joins) rank->Initialise();
    rank->join = JoinTransfer::Begin(rank->comm.get(), std::vector<int32_t>{0}, kPieceBytes,
                                     rank->state.get(), &rank->records)
                     .value();
    if (!joins) rank->state->Pieces(kPieceBytes).front().front().host[17] ^= std::byte{1};
    const Status finished = rank->stepper->FinishJoin({rank->comm.get()}, rank->join.get());
    EXPECT_EQ(finished.ok(), !joins);
    EXPECT_EQ(rank->state->present(), !joins);
    if (joins) {
      EXPECT_EQ(finished.error().code, Code::kCorrupt);
    }
  });
}

// The hashes that members compare are taken when a state is written. They are those of a member that fetches
// the state, also after a roll-back.
TEST(Membership, HashesOfTheUpdateAreThoseOfTheState) {
  TempFolder folder;
  for (const auto kind : {optimizer::Kind::kAdamW, optimizer::Kind::kSgd}) {
    RunConfig config = Gpt(&folder);
    config.optimizer.kind = kind;
    config.model.threads = 2;
    Rank filled(config);
    Ranks ranks;
    ranks.push_back(std::make_unique<Rank>(config));
    Connect(&ranks, 1);
    Rank& rank = *ranks[0];
    rank.Initialise();
    std::vector<TrainState::Hashes> seen = {rank.state->StateHashes().value()};
    const auto compare = [&] {
      const auto from = rank.state->Parts().value();
      const auto to = filled.state->Parts().value();
      for (size_t i = 0; i < from.size(); ++i) std::ranges::copy(from[i].bytes, to[i].bytes.begin());
      ASSERT_TRUE(filled.state->Adopt(rank.state->step(), rank.state->current().cursor, 0).ok());
      EXPECT_EQ(rank.state->StateHashes().value(), filled.state->StateHashes().value());
    };
    for (int64_t step = 1; step <= 4; ++step) {
      rank.Steps(step);
      seen.push_back(rank.state->StateHashes().value());
      EXPECT_NE(seen[static_cast<size_t>(step)], seen[static_cast<size_t>(step) - 1]);
      compare();
    }
    EXPECT_EQ(rank.state->UndoHashes().value(), seen[3]);
    rank.state->RollBack();
    EXPECT_EQ(rank.state->StateHashes().value(), seen[3]);
    compare();
  }
}

TEST(Membership, AReceiverRefusesAStateThatChangedAfterItsCommit) {
  TempFolder folder;
  const RunConfig config = Gpt(&folder);
  for (const size_t part : {0, 1, 2}) {
    Ranks ranks;
    for (int r = 0; r < 2; ++r) ranks.push_back(std::make_unique<Rank>(config));
    Connect(&ranks, 1);
    OnAll(&ranks, [part](Rank* rank) {
      if (rank->comm->rank() == 0) {
        rank->Initialise();
        const std::vector<TrainState::Part> parts = rank->state->Parts().value();
        parts[part].bytes[parts[part].bytes.size() / 2] ^= std::byte{1};
      }
      const Status shared =
          ShareState(rank->comm.get(), std::vector<int32_t>{0}, rank->state.get(), &rank->records);
      if (rank->comm->rank() == 0) {
        EXPECT_TRUE(shared.ok());
      } else {
        ASSERT_FALSE(shared.ok());
        EXPECT_EQ(shared.error().code, Code::kCorrupt);
        EXPECT_FALSE(rank->state->present());
      }
    });
  }
}

TEST(Membership, AnInterruptedStepChangesNothing) {
  TempFolder folder;
  const RunConfig config = Gpt(&folder);
  const Outcome reference = Train(config, 1, 8);
  Ranks ranks;
  ranks.push_back(std::make_unique<Rank>(config));
  Connect(&ranks, 1);
  Rank& rank = *ranks[0];
  rank.Initialise();
  rank.Steps(4);
  const uint64_t before = rank.state->ParamsHash().value();
  rank.cancel = true;
  const auto interrupted = rank.stepper->Run({rank.comm.get()}, &rank.cancel, [] { return false; });
  ASSERT_FALSE(interrupted.ok());
  EXPECT_EQ(interrupted.error().code, Code::kCancelled);
  EXPECT_EQ(rank.state->ParamsHash().value(), before);
  rank.cancel = false;
  rank.Steps(8);
  EXPECT_EQ(rank.outcome.params, reference.params);
}

// Two ranks begin a step, and rank `survivor` is interrupted when its model reports progress for the
// `polls`-th time. The survivor then repeats the step alone. Returns the number of reports of that
// repetition.
int InterruptAndRepeat(const RunConfig& config, int survivor, int polls, const Outcome& reference) {
  Ranks ranks;
  for (int r = 0; r < 2; ++r) ranks.push_back(std::make_unique<Rank>(config));
  Connect(&ranks, 1);
  OnAll(&ranks, [&](Rank* rank) {
    if (rank->comm->rank() == 0) rank->Initialise();
    const std::vector<int32_t> sources = {0};
    EXPECT_TRUE(ShareState(rank->comm.get(), sources, rank->state.get(), &rank->records).ok());
    rank->Steps(4);
  });
  std::swap(ranks[0], ranks[static_cast<size_t>(survivor)]);
  ranks.resize(1);
  Rank& rank = *ranks[0];
  int reports = 0;
  rank.model->SetProgressHook([&] {
    if (++reports == polls) rank.cancel = true;
  });
  const auto interrupted = rank.stepper->Run({rank.comm.get()}, &rank.cancel, [] { return false; });
  EXPECT_FALSE(interrupted.ok());
  rank.cancel = false;
  rank.model->SetProgressHook({});
  Connect(&ranks, 2);
  int repeated = 0;
  rank.model->SetProgressHook([&] { ++repeated; });
  rank.Steps(5);
  rank.model->SetProgressHook({});
  rank.Steps(8);
  EXPECT_EQ(rank.outcome.params, reference.params) << "after " << polls << " reports";
  EXPECT_EQ(rank.outcome.optimizer, reference.optimizer);
  EXPECT_EQ(rank.outcome.losses.back(), reference.losses.back());
  return repeated;
}

TEST_P(EitherSum, AnInterruptedStepKeepsItsMicroBatches) {
  TempFolder folder;
  RunConfig config = Gpt(&folder);
  config.wide_sums = GetParam();
  const Outcome reference = Train(config, 1, 8);
  // Each of the six micro-batches of a rank reports equally often.
  const int whole = InterruptAndRepeat(config, 0, 1, reference);
  ASSERT_EQ(whole % 12, 0);
  const int each = whole / 12;
  for (const int survivor : {0, 1}) {
    // Within the forward and the backward pass, and up to the last micro-batch, whose buckets are reduced.
    for (int polls = 2; polls <= 5 * each; polls += kSanitized ? 11 : 3) {
      const int complete = (polls - 1) / each;
      EXPECT_EQ(InterruptAndRepeat(config, survivor, polls, reference), whole - complete * each)
          << "survivor " << survivor << ", after " << polls << " reports";
    }
  }
}

TEST(Numerics, FastAgreesWithExactUpToRounding) {
  TempFolder folder;
  RunConfig config = Gpt(&folder);
  const Outcome exact = Train(config, 2, 10);
  config.exact = false;
  const Outcome fast = Train(config, 2, 10);
  EXPECT_NE(fast.params, exact.params);
  for (size_t i = 0; i < fast.losses.size(); ++i) EXPECT_NEAR(fast.losses[i], exact.losses[i], 1e-3) << i;
}

TEST(Numerics, TwoLimbsDoNotDependOnTheWorldSize) {
  TempFolder folder;
  for (RunConfig config : {Gpt(&folder), Image(&folder, engine::ModelKind::kCnn)}) {
    const Outcome narrow = Train(config, 1, 8);
    config.wide_sums = true;
    const Outcome alone = Train(config, 1, 8);
    EXPECT_NE(alone.params, narrow.params);
    for (size_t i = 0; i < alone.losses.size(); ++i)
      EXPECT_NEAR(alone.losses[i], narrow.losses[i], 1e-3) << i;
    for (const int world : {2, 3, 12}) EXPECT_EQ(Train(config, world, 8), alone) << "world " << world;
    config.model.threads = 2;
    EXPECT_EQ(Train(config, 2, 8), alone);
  }
}

// A gradient that is 2^30 times as large as usual raises the exponents for thousands of steps. One limb then
// rounds all later gradients to zero; two limbs keep them.
TEST(Numerics, TwoLimbsTrainOnAfterASpike) {
  TempFolder folder;
  RunConfig config = Gpt(&folder);
  config.schedule = {.base = 1e-2, .total_steps = 30};
  config.optimizer.weight_decay = 0;
  std::vector<double> norms[2];
  for (const bool wide : {false, true}) {
    config.wide_sums = wide;
    Ranks ranks;
    ranks.push_back(std::make_unique<Rank>(config));
    Connect(&ranks, 1);
    Rank& rank = *ranks.front();
    rank.Initialise();
    rank.Steps(3);
    for (int32_t& exponent : rank.state->current().exponents) exponent += 30;  // as after the spike
    for (int i = 0; i < 3; ++i)
      norms[wide ? 1 : 0].push_back(
          rank.stepper->Run({rank.comm.get()}, &rank.cancel, [] { return false; })->gradient_norm);
  }
  EXPECT_EQ(norms[0], std::vector<double>(3, 0.0));
  for (const double norm : norms[1]) EXPECT_GT(norm, 0.05);
}

TEST(Numerics, ADivergedJobFailsWithARemedy) {
  TempFolder folder;
  RunConfig config = Gpt(&folder);
  config.schedule.base = 1e30;
  config.optimizer.clip_norm = 0;
  Ranks ranks;
  ranks.push_back(std::make_unique<Rank>(config));
  Connect(&ranks, 1);
  ranks[0]->Initialise();
  Result<StepResult> last = StepResult{};
  for (int i = 0; i < 30 && last.ok(); ++i) {
    last = ranks[0]->stepper->Run({ranks[0]->comm.get()}, &ranks[0]->cancel, [] { return false; });
  }
  ASSERT_FALSE(last.ok());
  EXPECT_EQ(last.error().code, Code::kInvalid);
  EXPECT_NE(last.error().message.find("learningRate"), std::string::npos);
}

// In bf16 a model keeps rounded weights between calls. Neither the number of ranks, nor a validation, nor a
// roll-back after one may change the bits.
TEST(Invariance, Bf16WithValidationAndRollBack) {
  TempFolder folder;
  RunConfig config = Gpt(&folder);
  config.model.precision = engine::Precision::kBf16;
  const Outcome alone = Train(config, 1, 6);
  EXPECT_EQ(Train(config, 2, 6).params, alone.params);
  EXPECT_EQ(Train(config, 3, 6).params, alone.params);
  Ranks ranks;
  ranks.push_back(std::make_unique<Rank>(config));
  Connect(&ranks, 1);
  Rank& rank = *ranks.front();
  rank.Initialise();
  rank.Steps(4);
  ASSERT_TRUE(rank.Validated().ok());
  rank.state->RollBack();
  rank.Steps(6);
  EXPECT_EQ(rank.outcome.params, alone.params);
  EXPECT_EQ(rank.Validated()->loss, alone.validation);
}

// A peer that hangs in a validation must not make the ranks that wait for it look hung.
TEST(Hangs, ARankThatHasDoneItsShareOfAValidationShowsThatItWaits) {
  TempFolder folder;
  const RunConfig config = Gpt(&folder);
  auto page = agent::SharedPageMemory::Create().value();
  auto trainer_page = agent::TrainerPage::Attach(page.fd()).value();
  const auto activity = [&page] { return static_cast<agent::Activity>(page.page().activity.load()); };
  Ranks ranks;
  for (int r = 0; r < 2; ++r) ranks.push_back(std::make_unique<Rank>(config));
  Connect(&ranks, 1);
  for (auto& rank : ranks) rank->Initialise();
  trainer_page.SetActivity(agent::Activity::kComputing);
  bool waited = false;
  std::thread peer([&] {
    const Time deadline = Now() + seconds(60);
    while (!waited && Now() < deadline) {
      std::this_thread::yield();
      waited = activity() == agent::Activity::kExchanging;
    }
    EXPECT_TRUE(ranks[1]->Validated().ok());
  });
  EXPECT_TRUE(ranks[0]->Validated(&trainer_page).ok());
  peer.join();
  EXPECT_TRUE(waited);
  EXPECT_EQ(activity(), agent::Activity::kComputing);
}

}  // namespace
}  // namespace ringmaster::trainer
