// SPDX-License-Identifier: Apache-2.0

// The conformance suite for the local backend. Each pod is a process that runs a shell script.
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "base/time.h"
#include "operator/local/local_backend.h"
#include "tests/conformance/harness.h"
#include "tests/temp_folder.h"

namespace ringmaster::conformance {
namespace {

constexpr const char* kScript = R"(case "${RINGMASTER_POD##*-}" in
0) trap 'exit 0' TERM; while :; do sleep 60 & wait $!; done ;;
1) exit 0 ;;
2) printf 'out of cheese' > "$RINGMASTER_TERMINATION_LOG"; exit 7 ;;
3) trap '' TERM; while :; do sleep 60; done ;;
4) kill -KILL $$ ;;
esac
)";

class LocalHarness final : public Harness {
 public:
  LocalHarness() {
    const std::string script = folder_.Write("worker.sh", kScript);
    local::LocalBackend::Options options;
    options.argv = {"/bin/sh", script};
    options.directory = folder_.path();
    auto backend = local::LocalBackend::Create(std::move(options));
    CHECK(backend.ok(), "{}", backend.error().message);
    backend_ = std::move(backend).value();
    backend_->Subscribe([this](const control::Key&) { changed_.notify_all(); });
  }
  ~LocalHarness() override { backend_.reset(); }

  control::Backend& backend() override { return *backend_; }

  control::Key Submit(const std::string& name) override {
    api::TrainingJob job;
    job.metadata.name = name;
    job.spec.framework = "native";
    return backend_->Submit(job).value();
  }
  control::Key SubmitForGate(const std::string& name) override { return Submit(name); }

  void DeleteJob(const control::Key& key) override { EXPECT_TRUE(backend_->Delete(key).ok()); }

  bool HasGates() const override { return false; }
  bool DamageSupport(const control::Key&) override { return false; }
  bool Enqueue(const control::Key&, const std::string&) override { return false; }
  void Admit(const control::Key&) override {}

  bool Await(const std::function<bool()>& condition) override {
    const Time limit = Now() + seconds(60);
    std::unique_lock lock(mutex_);
    while (!condition()) {
      if (Now() >= limit) return false;
      // Also checked without a change, since a condition may depend on more than the view.
      changed_.wait_for(lock, milliseconds(5));
    }
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  const TempFolder folder_;
  std::unique_ptr<local::LocalBackend> backend_;
};

std::unique_ptr<Harness> MakeLocal() { return std::make_unique<LocalHarness>(); }

INSTANTIATE_TEST_SUITE_P(Local, BackendConformance, testing::Values(MakeLocal));

}  // namespace
}  // namespace ringmaster::conformance
