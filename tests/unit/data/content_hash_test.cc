// SPDX-License-Identifier: Apache-2.0

// The hash by which members compare their data sees every byte, and a restarted worker finds it in a folder.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "base/rng.h"
#include "base/time.h"
#include "tests/unit/data/files.h"
#include "worker/data/content_hasher.h"
#include "worker/data/dataset.h"
#include "worker/data/fingerprint.h"
#include "worker/data/hash_cache.h"

namespace ringmaster::data {
namespace {

constexpr size_t kUnsampled = 72'000;  // between two samples of a file of 500 KB

std::string Text(uint64_t seed, size_t bytes) {
  SplitMix64 random(seed);
  std::string out(bytes, '\0');
  for (char& c : out) c = static_cast<char>(' ' + random.Below(95));
  return out;
}

Config TextConfig(const std::string& path) {
  Config config;
  config.path = path;
  config.context = 16;
  return config;
}

Config IdxConfig(const std::string& path) {
  Config config;
  config.kind = Kind::kIdx;
  config.path = path;
  return config;
}

uint64_t ContentOf(const Config& config) {
  const auto opened = Dataset::Open(config);
  if (!opened.ok()) {
    ADD_FAILURE() << opened.error().message;
    return 0;
  }
  const auto hash = (*opened)->HashContent({});
  EXPECT_TRUE(hash.ok());
  return hash.ok() ? hash->value : 0;
}

TEST(ContentHash, SeesAByteBetweenTheSamples) {
  const TempFolder folder;
  std::string text = Text(1, 500'000);
  for (const Piece& piece : SamplePieces(text.size()))
    ASSERT_FALSE(piece.offset <= kUnsampled && kUnsampled < piece.offset + piece.bytes);
  const Config a = TextConfig(folder.Write("a.txt", text));
  const Config same = TextConfig(folder.Write("elsewhere/same.txt", text));
  text[kUnsampled] ^= 1;
  const Config b = TextConfig(folder.Write("b.txt", text));
  EXPECT_EQ((*Dataset::Open(a))->Fingerprint(), (*Dataset::Open(b))->Fingerprint());
  EXPECT_NE(ContentOf(a), ContentOf(b));
  EXPECT_EQ(ContentOf(a), ContentOf(same));
}

TEST(ContentHash, DependsOnSplitAndOrder) {
  const TempFolder folder;
  const std::string text = Text(2, 10'000);
  Config config = TextConfig(folder.Write("text.txt", text));
  const uint64_t hash = ContentOf(config);
  config.validation_fraction = 0.5;
  EXPECT_NE(ContentOf(config), hash);
  folder.Write("ab/1", text.substr(0, 4000));
  folder.Write("ab/2", text.substr(4000));
  folder.Write("ba/1", text.substr(4000));
  folder.Write("ba/2", text.substr(0, 4000));
  EXPECT_NE(ContentOf(TextConfig(folder.path() + "/ab")), ContentOf(TextConfig(folder.path() + "/ba")));
}

TEST(ContentHash, OfImagesDoesNotDependOnCompression) {
  const TempFolder folder;
  std::string pixels = Text(3, 600 * 28 * 28);
  const std::string labels = Idx({600}, std::string(600, '\3'));
  for (const char* name : {"plain", "other"})
    folder.Write(std::string(name) + "/train-labels-idx1-ubyte", labels);
  folder.Write("packed/train-labels-idx1-ubyte.gz", Gzip(labels));
  folder.Write("plain/train-images-idx3-ubyte", Idx({600, 28, 28}, pixels));
  folder.Write("packed/train-images-idx3-ubyte.gz", Gzip(Idx({600, 28, 28}, pixels)));
  pixels[kUnsampled] ^= 1;
  folder.Write("other/train-images-idx3-ubyte", Idx({600, 28, 28}, pixels));
  const uint64_t hash = ContentOf(IdxConfig(folder.path() + "/plain"));
  EXPECT_EQ(ContentOf(IdxConfig(folder.path() + "/packed")), hash);
  EXPECT_NE(ContentOf(IdxConfig(folder.path() + "/other")), hash);
  folder.Write("plain/train-labels-idx1-ubyte", Idx({600}, std::string(599, '\3') + "\4"));
  EXPECT_NE(ContentOf(IdxConfig(folder.path() + "/plain")), hash);
}

TEST(ContentHash, EndsWhenItIsCancelled) {
  const TempFolder folder;
  const auto opened = Dataset::Open(TextConfig(folder.Write("text.txt", Text(4, 1000))));
  ASSERT_TRUE(opened.ok());
  const std::atomic<bool> cancel{true};
  ContentHashOptions options;
  options.cancel = &cancel;
  const auto hash = (*opened)->HashContent(options);
  ASSERT_FALSE(hash.ok());
  EXPECT_EQ(hash.error().code, Code::kCancelled);
}

// ---- files that are not in memory

class FileHash : public testing::Test {
 protected:
  // Hashes a file as another process would, without its first byte.
  ContentHash Hash(const std::string& path, uint64_t held_bytes = 0, uint64_t most_bytes = UINT64_MAX) {
    FilePool pool(FilePool::Limits{.held_bytes = held_bytes});
    const auto file = pool.Add(path);
    EXPECT_TRUE(file.ok());
    ContentHashOptions options;
    options.cache_folder = Cache();
    options.node = "node-a";
    options.counter = &counter_;
    options.most_bytes = most_bytes;
    ContentHasher hasher(pool, options, 0);
    EXPECT_TRUE(hasher.AddRange(*file, 1, pool.size(*file) - 1).ok());
    return hasher.value();
  }
  // The same, until it is in the cache: a file that was written a moment ago is not kept.
  ContentHash HashUntilKept(const std::string& path) {
    ContentHash hash;
    const Time give_up = Now() + seconds(60);
    do hash = Hash(path);
    while (hash.bytes_read > 0 && Now() < give_up);
    return hash;
  }
  std::string Cache() const { return folder_.path() + "/checkpoints/data-hashes"; }

  const TempFolder folder_;
  WorkCounter counter_;
};

TEST_F(FileHash, IsThatOfTheSameBytesInMemory) {
  for (const size_t bytes : {size_t{1000}, size_t{1} << 20, (size_t{1} << 20) + 1, size_t{5'000'000}}) {
    const std::string path = folder_.Write("text.txt", Text(bytes, bytes));
    const ContentHash read = Hash(path);
    EXPECT_EQ(read.bytes_read, bytes - 1);
    EXPECT_EQ(counter_.done, static_cast<int64_t>(bytes - 1));
    EXPECT_EQ(counter_.total, static_cast<int64_t>(bytes));
    EXPECT_EQ(Hash(path, bytes).value, read.value) << bytes;
    EXPECT_EQ(Hash(path, bytes).bytes_read, 0U);
  }
}

TEST_F(FileHash, IsReadOnceUntilTheFileIsWritten) {
  std::string text = Text(5, 500'000);
  const std::string path = folder_.Write("text.txt", text);
  const ContentHash first = Hash(path);
  EXPECT_EQ(first.bytes_read, text.size() - 1);
  const ContentHash kept = HashUntilKept(path);
  EXPECT_EQ(kept.value, first.value);
  EXPECT_EQ(kept.bytes_read, 0U);
  EXPECT_EQ(counter_.done, static_cast<int64_t>(text.size() - 1));

  // The same size and time of modification: only the time of change shows it.
  const auto modified = std::filesystem::last_write_time(path);
  text[kUnsampled] ^= 1;
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out).seekp(kUnsampled).put(text[kUnsampled]);
  std::filesystem::last_write_time(path, modified);
  const ContentHash second = Hash(path);
  EXPECT_EQ(second.bytes_read, text.size() - 1);
  EXPECT_NE(second.value, first.value);
}

TEST_F(FileHash, IsOfTheSizeAloneWhenTheFilesAreTooLarge) {
  const std::string path = folder_.Write("text.txt", Text(7, 100'000));
  EXPECT_TRUE(Hash(path, 0, 100'000).whole);
  const ContentHash sampled = Hash(path, 0, 99'999);
  EXPECT_FALSE(sampled.whole);
  EXPECT_EQ(sampled.bytes_read, 0U);
  EXPECT_EQ(counter_.total, 0);
  EXPECT_NE(sampled.value, Hash(folder_.Write("longer.txt", Text(7, 100'001)), 0, 99'999).value);
  EXPECT_TRUE(Hash(path, 100'000, 99'999).whole);  // held in memory
}

TEST_F(FileHash, LeavesOnlyEntriesInTheFolder) {
  const std::string path = folder_.Write("text.txt", Text(6, 100'000));
  HashUntilKept(path);
  size_t entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Cache())) {
    EXPECT_EQ(entry.path().filename().string().size(), 16U) << entry.path();
    ++entries;
  }
  EXPECT_EQ(entries, 1U);
}

TEST_F(FileHash, NeedsNoFolder) {
  const std::string path = folder_.Write("text.txt", Text(7, 100'000));
  folder_.Write("checkpoints", "a file where the folder of the cache would be");
  const ContentHash hash = Hash(path);
  EXPECT_EQ(hash.bytes_read, 99'999U);
  EXPECT_EQ(Hash(path).value, hash.value);
}

// ---- the cache

FilePool::Version SomeVersion() {
  FilePool::Version version;
  version.device = 1;
  version.inode = 2;
  version.size = 1000;
  version.modified_ns = 1'700'000'000'123'456'789;
  version.changed_ns = version.modified_ns;
  return version;
}

TEST(HashCache, FindsWhatWasPutUnderTheSameKey) {
  const TempFolder folder;
  const HashCache cache(folder.path(), "node-a");
  const HashCache::Key key = cache.KeyOf(SomeVersion(), 0, 1000);
  EXPECT_EQ(cache.Find(key), std::nullopt);
  cache.Put(key, 0xfedcba9876543210);
  EXPECT_EQ(cache.Find(key), 0xfedcba9876543210);
  EXPECT_EQ(cache.Find(cache.KeyOf(SomeVersion(), 24, 976)), std::nullopt);
  for (const auto change :
       {+[](FilePool::Version* v) { ++v->file_system; }, +[](FilePool::Version* v) { ++v->device; },
        +[](FilePool::Version* v) { ++v->inode; }, +[](FilePool::Version* v) { ++v->size; },
        +[](FilePool::Version* v) { ++v->modified_ns; }, +[](FilePool::Version* v) { ++v->changed_ns; },
        +[](FilePool::Version* v) { ++v->ends; }}) {
    FilePool::Version other = SomeVersion();
    change(&other);
    EXPECT_EQ(cache.Find(cache.KeyOf(other, 0, 1000)), std::nullopt);
  }
}

TEST(HashCache, OnlySharedFilesAreTheSameOnOtherNodes) {
  const TempFolder folder;
  const HashCache here(folder.path(), "node-a");
  const HashCache there(folder.path(), "node-b");
  FilePool::Version version = SomeVersion();
  here.Put(here.KeyOf(version, 0, 1000), 1);
  EXPECT_EQ(there.Find(there.KeyOf(version, 0, 1000)), std::nullopt);
  version.shared = true;
  here.Put(here.KeyOf(version, 0, 1000), 2);
  version.device = 7;  // the other node's number of the mount
  EXPECT_EQ(there.Find(there.KeyOf(version, 0, 1000)), 2U);
}

TEST(HashCache, DoesNotKeepAFileThatMayBeWrittenAgainAtTheSameTime) {
  const TempFolder folder;
  const HashCache cache(folder.path(), "node-a");
  HashCache::Key key = cache.KeyOf(SomeVersion(), 0, 1000);
  key.looked_ns = key.changed_ns + 1'000'000;
  cache.Put(key, 1);
  EXPECT_EQ(cache.Find(key), std::nullopt);
  key.looked_ns = key.changed_ns + 100'000'000;
  cache.Put(key, 1);
  EXPECT_EQ(cache.Find(key), 1U);

  FilePool::Version whole_seconds = SomeVersion();
  whole_seconds.modified_ns = whole_seconds.changed_ns = 1'700'000'000'000'000'000;
  key = cache.KeyOf(whole_seconds, 0, 1000);
  key.looked_ns = key.changed_ns + 1'000'000'000;
  cache.Put(key, 1);
  EXPECT_EQ(cache.Find(key), std::nullopt);
}

TEST(HashCache, IgnoresDamagedEntries) {
  const TempFolder folder;
  const HashCache cache(folder.path(), "node-a");
  const HashCache::Key key = cache.KeyOf(SomeVersion(), 0, 1000);
  cache.Put(key, 0x0123456789abcdef);
  const std::string name = std::filesystem::directory_iterator(folder.path())->path().filename().string();
  const std::string entry = folder.Read(name);
  for (size_t i = 0; i < entry.size(); ++i) {
    std::string damaged = entry;
    damaged[i] ^= 1;
    folder.Write(name, damaged);
    EXPECT_EQ(cache.Find(key), std::nullopt) << i;
    folder.Write(name, entry.substr(0, i));
    EXPECT_EQ(cache.Find(key), std::nullopt) << i;
  }
  folder.Write(name, entry);
  EXPECT_EQ(cache.Find(key), 0x0123456789abcdefU);
}

TEST(HashCache, TheOthersWaitForTheOneThatHashes) {
  const TempFolder folder;
  const HashCache cache(folder.path(), "node-a");
  const HashCache::Key key = cache.KeyOf(SomeVersion(), 0, 1000);
  std::optional<uint64_t> found;
  std::thread other;
  {
    const HashCache::Lock lock = cache.LockFor(key, nullptr);
    other = std::thread([&] {
      const HashCache other_cache(folder.path(), "node-a");
      const HashCache::Lock theirs = other_cache.LockFor(key, nullptr);
      found = other_cache.Find(key);
    });
    const std::atomic<bool> cancel{true};
    const HashCache::Lock not_taken = cache.LockFor(key, &cancel);  // returns, though it is held
    cache.Put(key, 3);
  }
  other.join();
  EXPECT_EQ(found, 3U);
}

}  // namespace
}  // namespace ringmaster::data
