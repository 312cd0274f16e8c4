// SPDX-License-Identifier: Apache-2.0

// A loss of power: unsynced data may be lost, wholly or partly, even if later changes survive. The test
// records the changes of a publisher. After each change it rebuilds the disk as a file system might have left
// it, many times with different choices, and the old or the new checkpoint must load.
//
// The model of a file system: a file's bytes are durable once it is synced; before that, any prefix of them,
// or as many zeros, may survive. A folder's entries are durable once it is synced; of the changes since then,
// a prefix survives (names are journalled in order).
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>

#include "tests/unit/checkpoint/snapshots.h"
#include "worker/checkpoint/file_system.h"

namespace ringmaster::checkpoint {
namespace {

namespace fs = std::filesystem;

struct Node {
  bool folder = false;
  std::string safe;  // a file's bytes
  std::string now;
  std::map<std::string, std::shared_ptr<Node>> safe_entries;
  std::map<std::string, std::shared_ptr<Node>> entries;
  std::vector<std::function<void(std::map<std::string, std::shared_ptr<Node>>*)>>
      pending;  // since the last sync
};

using Entries = std::map<std::string, std::shared_ptr<Node>>;

// The modelled disk; contains only paths below the root.
class Model {
 public:
  explicit Model(std::string root) : root_path_(std::move(root)), root_(std::make_shared<Node>()) {
    root_->folder = true;
  }

  void Make(const std::string& path, bool folder) {
    auto node = std::make_shared<Node>();
    node->folder = folder;
    Change(fs::path(path).parent_path(),
           [name = fs::path(path).filename().string(), node](Entries* e) { (*e)[name] = node; });
  }
  void Remove(const std::string& path) {
    Change(fs::path(path).parent_path(),
           [name = fs::path(path).filename().string()](Entries* e) { e->erase(name); });
  }
  void Rename(const std::string& from, const std::string& to) {
    Change(fs::path(to).parent_path(),
           [a = fs::path(from).filename().string(), b = fs::path(to).filename().string()](Entries* e) {
             if (!e->contains(a)) return;
             (*e)[b] = e->at(a);
             e->erase(a);
           });
  }
  void Append(const std::string& path, std::string_view bytes) { Find(path)->now += bytes; }
  void Sync(const std::string& path) {
    Node* node = Find(path);
    node->safe = node->now;
    node->safe_entries = node->entries;
    node->pending.clear();
  }

  // Writes a possible state after a power cut to `target`. The first choices are the extremes.
  void Rebuild(const std::string& target, uint64_t choice) const {
    SplitMix64 random(choice);
    Rebuild(*root_, target, choice, &random);
  }

 private:
  Node* Find(const fs::path& path) {
    Node* node = root_.get();
    if (path.string() == root_path_) return node;
    for (const fs::path& part : fs::relative(path, root_path_)) node = node->entries.at(part.string()).get();
    return node;
  }

  void Change(const fs::path& folder, std::function<void(Entries*)> change) {
    Node* node = Find(folder);
    change(&node->entries);
    node->pending.push_back(std::move(change));
  }

  static void Rebuild(const Node& node, const std::string& target, uint64_t choice, SplitMix64* random) {
    if (!node.folder) {
      std::string bytes = choice == 0 ? node.safe : node.now;
      if (choice > 1 && node.safe != node.now) {
        bytes = node.now.substr(0, random->Below(node.now.size() + 1));
        if (random->Chance(0.3)) bytes = std::string(node.now.size(), '\0');
        if (random->Chance(0.3)) bytes = node.now;
        if (random->Chance(0.2)) bytes = node.safe;
      }
      WriteText(target, bytes);
      return;
    }
    Entries entries = node.safe_entries;
    const size_t survive = choice == 0   ? 0
                           : choice == 1 ? node.pending.size()
                                         : random->Below(node.pending.size() + 1);
    for (size_t i = 0; i < survive; ++i) node.pending[i](&entries);
    fs::create_directories(target);
    for (const auto& [name, child] : entries) Rebuild(*child, target + "/" + name, choice, random);
  }

  std::string root_path_;
  std::shared_ptr<Node> root_;
};

// Makes the real changes, mirrors them in the model, and calls `after` after each.
class RecordingFiles final : public FileSystem {
 public:
  RecordingFiles(Model* model, std::function<void()> after) : model_(*model), after_(std::move(after)) {}

  Status MakeFolder(const std::string& path) override {
    return Mirror(real_.MakeFolder(path), [&] { model_.Make(path, true); });
  }
  Result<Fd> Create(const std::string& path) override {
    auto file = real_.Create(path);
    if (file.ok()) model_.Make(path, false);
    after_();
    return file;
  }
  Status Write(const Fd& file, const std::string& path, std::span<const std::byte> bytes) override {
    return Mirror(real_.Write(file, path, bytes), [&] {
      model_.Append(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    });
  }
  Status Sync(const Fd& file, const std::string& path) override {
    return Mirror(real_.Sync(file, path), [&] { model_.Sync(path); });
  }
  Status SyncFolder(const std::string& path) override {
    return Mirror(real_.SyncFolder(path), [&] { model_.Sync(path); });
  }
  Status Rename(const std::string& from, const std::string& to) override {
    return Mirror(real_.Rename(from, to), [&] { model_.Rename(from, to); });
  }
  Status RemoveFile(const std::string& path) override {
    return Mirror(real_.RemoveFile(path), [&] { model_.Remove(path); });
  }
  Status RemoveFolder(const std::string& path) override {
    return Mirror(real_.RemoveFolder(path), [&] { model_.Remove(path); });
  }

 private:
  Status Mirror(Status done, const std::function<void()>& mirror) {
    if (done.ok()) mirror();
    after_();
    return done;
  }
  FileSystem& real_ = PosixFiles();
  Model& model_;
  std::function<void()> after_;
};

TEST(PowerCut, AfterEveryChangeTheOldOrTheNewCheckpointLoads) {
  constexpr uint64_t kChoices = 12;
  const Folder folder;
  Model model(folder.path());
  int64_t published = 0;  // the newest step whose Publish has returned
  int changes = 0;
  const auto check = [&] {
    ++changes;
    for (uint64_t choice = 0; choice < kChoices; ++choice) {
      SCOPED_TRACE(testing::Message() << "change " << changes << " choice " << choice);
      const Folder rebuilt;
      model.Rebuild(rebuilt.path(), choice < 2 ? choice : static_cast<uint64_t>(changes) * 1000 + choice);
      const auto loaded = LoadNewest(rebuilt.path(), kModel);
      if (published == 0 && !loaded.ok()) {
        ASSERT_EQ(loaded.error().code, Code::kNotFound) << loaded.error().message;
        continue;
      }
      ASSERT_TRUE(loaded.ok()) << loaded.error().message;
      ASSERT_GE(loaded->step, published);  // what was reported as published stays published
      ASSERT_LE(loaded->step, published + 1);
      ExpectWhole(*loaded);
    }
  };
  RecordingFiles files(&model, check);
  Publisher publisher(&files, folder.path(), 1, "m1", kSmallChunk);
  for (int64_t step = 1; step <= 3; ++step) {
    ASSERT_TRUE(publisher.Publish(MakeCopy(step)).ok());
    published = step;
    check();
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
  EXPECT_GT(changes, 90);
}

}  // namespace
}  // namespace ringmaster::checkpoint
