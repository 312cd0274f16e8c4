// SPDX-License-Identifier: Apache-2.0

#include "cli/launch/code_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/file.h"
#include "cli/launch/ignore_rules.h"
#include "cli/launch/secrets.h"

namespace ringmaster::cli::launch {
namespace {

namespace fs = std::filesystem;

constexpr size_t kIgnoreFileBytes = size_t{1} << 20;
// Folders that programs create again, or that belong to this machine.
constexpr std::array<std::string_view, 10> kGeneratedFolders = {
    ".hg",         "__pycache__", ".ipynb_checkpoints", ".mypy_cache",   ".pytest_cache", ".tox",
    ".ruff_cache", ".cache",      "node_modules",       "ringmaster-out"};

bool IsGenerated(const fs::path& path, std::string_view name) {
  if (std::find(kGeneratedFolders.begin(), kGeneratedFolders.end(), name) != kGeneratedFolders.end())
    return true;
  std::error_code ignored;
  return fs::exists(path / "pyvenv.cfg", ignored);  // a virtual environment, whatever its name is
}

std::string TextOf(const fs::path& file) {
  const Result<std::string> text = ReadFile(file.string(), kIgnoreFileBytes);
  return text.ok() ? *text : std::string();
}

// Returns core.excludesFile of the user's configuration, or git's default for it.
fs::path UserIgnoreFile() {
  const char* const home = std::getenv("HOME");
  const char* const xdg = std::getenv("XDG_CONFIG_HOME");
  const fs::path base = home == nullptr ? fs::path() : fs::path(home);
  const fs::path config = xdg != nullptr && *xdg != '\0' ? fs::path(xdg) : base / ".config";
  fs::path file = config / "git/ignore";
  for (const fs::path& settings : {config / "git/config", base / ".gitconfig"}) {
    const std::string text = TextOf(settings);
    std::string lower = text;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return c < 0x80 ? static_cast<char>(std::tolower(c)) : '?'; });
    const size_t key = lower.find("excludesfile");
    const size_t equals = key == lower.npos ? key : text.find('=', key);
    if (equals == text.npos) continue;
    std::string value = text.substr(equals + 1, std::min(text.find('\n', equals), text.size()) - equals - 1);
    std::erase_if(value, [](char c) { return c == '"' || c == '\r'; });
    value.erase(0, value.find_first_not_of(" \t"));
    value.erase(value.find_last_not_of(" \t") + 1);
    file = value.starts_with("~/") ? base / value.substr(2) : fs::path(value);
  }
  return file;
}

// Returns the folder with info/exclude. In a worktree and in a submodule, .git is a file with the path of
// another folder; that of a worktree names the common folder of all worktrees of the repository.
fs::path GitFolder(const fs::path& root) {
  const auto first_line = [](const fs::path& file) {
    std::string text = TextOf(file);
    text.resize(std::min(text.find_first_of("\r\n"), text.size()));
    return text;
  };
  constexpr std::string_view kElsewhere = "gitdir: ";
  fs::path git = root / ".git";
  if (const std::string line = first_line(git); line.starts_with(kElsewhere))
    git = root / line.substr(kElsewhere.size());
  if (const std::string common = first_line(git / "commondir"); !common.empty()) git /= common;
  return git;
}

Error TooMuch(const std::string& folder, const std::string& what) {
  return {Code::kInvalid,
          fmt::format("{}: {}, too much to send with a job; list data and results in .gitignore, start in "
                      "the folder of the program, or build an image with the code and pass --image and "
                      "--no-code",
                      folder, what)};
}

class Reader {
 public:
  explicit Reader(fs::path folder) : folder_(std::move(folder)) {}

  Result<CodeFolder> Read() {
    RM_TRY(ReadRulesAbove());
    RM_TRY(Visit(folder_));
    const auto by_path = [](const auto& a, const auto& b) { return a.path < b.path; };
    std::sort(code_.files.begin(), code_.files.end(), by_path);
    std::sort(code_.left_out.begin(), code_.left_out.end(), by_path);
    return std::move(code_);
  }

 private:
  // Finds the root of the repository, whose rules apply below it.
  Status ReadRulesAbove() {
    root_ = folder_;
    std::error_code ignored;
    for (fs::path above = folder_; !above.empty(); above = above.parent_path()) {
      if (fs::exists(above / ".git", ignored)) {
        root_ = above;
        break;
      }
      if (above == above.parent_path()) break;
    }
    rules_.Add("", TextOf(UserIgnoreFile()));
    rules_.Add("", TextOf(GitFolder(root_) / "info/exclude"));
    fs::path at = root_;
    for (const fs::path& name : folder_.lexically_relative(root_)) {
      if (name == ".") break;
      rules_.Add(Below(root_, at), TextOf(at / ".gitignore"));
      at /= name;
      if (rules_.Ignores(Below(root_, at), true))
        return Error{Code::kInvalid,
                     fmt::format("{}: git ignores this folder, so nothing in it is sent; start in another "
                                 "folder, or pass --no-code with an image that has the program",
                                 at.string())};
    }
    return Ok();
  }

  static std::string Below(const fs::path& root, const fs::path& path) {
    const std::string relative = path.lexically_relative(root).string();
    return relative == "." ? std::string() : relative;
  }

  Status Visit(const fs::path& folder) {
    rules_.Add(Below(root_, folder), TextOf(folder / ".gitignore"));
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
      RM_TRY(Take(*at));
    if (error) return ErrnoError(folder.string(), error.value());
    return Ok();
  }

  void LeaveOut(const std::string& path, const char* why) { code_.left_out.push_back({path, why}); }

  Status Take(const fs::directory_entry& entry) {
    const fs::path& path = entry.path();
    const std::string name = path.filename().string();
    if (name == ".git") return Ok();  // a folder, or the file of a worktree or a submodule
    const std::string shown = Below(folder_, path);
    std::error_code error;
    const fs::file_status status = entry.symlink_status(error);
    const bool is_folder = status.type() == fs::file_type::directory;
    if (is_folder && IsGenerated(path, name)) return Ok();
    if (rules_.Ignores(Below(root_, path), is_folder)) return Ok();
    if (IsSecretName(name)) {
      LeaveOut(shown + (is_folder ? "/" : ""), "it may hold a secret");
      return Ok();
    }
    if (is_folder) return Visit(path);
    if (status.type() == fs::file_type::symlink) {
      TakeLink(path, shown);
      return Ok();
    }
    if (status.type() != fs::file_type::regular) {
      LeaveOut(shown, "not a file");
      return Ok();
    }
    return TakeFile(path, shown, (status.permissions() & fs::perms::owner_exec) != fs::perms::none);
  }

  // A link that leaves the folder would be broken on a node, or expose what is not part of the code.
  void TakeLink(const fs::path& path, const std::string& shown) {
    std::error_code error;
    const fs::path target = fs::read_symlink(path, error);
    const fs::path reached = (path.parent_path() / target).lexically_normal();
    if (error || target.is_absolute() || reached.lexically_relative(folder_).string().starts_with(".."))
      return LeaveOut(shown, "a link that leads out of the folder");
    code_.files.push_back({shown, "", target.string()});
  }

  Status TakeFile(const fs::path& path, const std::string& shown, bool executable) {
    if (shown.ends_with(".pyc")) return Ok();
    if (code_.files.size() >= kMostFiles)
      return TooMuch(folder_.string(), fmt::format("more than {} files", kMostFiles));
    Result<std::string> content = ReadFile(path.string(), static_cast<size_t>(kMostBytes - bytes_));
    if (!content.ok() && content.error().code == Code::kExhausted)
      return TooMuch(folder_.string(), fmt::format("more than {} MiB with {}", kMostBytes >> 20, shown));
    if (!content.ok()) return content.error();
    bytes_ += static_cast<int64_t>(content->size());
    if (HasPrivateKey(*content)) {
      LeaveOut(shown, "it has a private key");
      return Ok();
    }
    code_.files.push_back({shown, *std::move(content), "", executable});
    return Ok();
  }

  const fs::path folder_;
  fs::path root_;  // of the repository; the folder itself if there is none
  IgnoreRules rules_;
  CodeFolder code_;
  int64_t bytes_ = 0;
};

}  // namespace

Result<CodeFolder> ReadCode(const std::string& folder) {
  std::error_code error;
  const fs::path path = fs::canonical(folder, error);
  if (error) return ErrnoError(folder, error.value());
  return Reader(path).Read();
}

}  // namespace ringmaster::cli::launch
