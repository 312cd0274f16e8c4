#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>

namespace ringmaster::log {
namespace {

spdlog::level::level_enum ToSpd(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// spdlog keeps its own registry; this is the one place that touches it.
spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = spdlog::stderr_logger_mt("ringmaster");
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %L %v");
    made->flush_on(spdlog::level::debug);
    const char* wanted = std::getenv("RINGMASTER_LOG");
    made->set_level(wanted == nullptr ? spdlog::level::info : spdlog::level::from_str(wanted));
    return made;
  }();
  return *logger;
}

}  // namespace

void Init(const std::string& name) { Logger().set_pattern("%Y-%m-%dT%H:%M:%S.%e %L " + name + " %v"); }

void Write(Level level, std::string_view line) {
  Logger().log(ToSpd(level), spdlog::string_view_t(line.data(), line.size()));
}

bool Enabled(Level level) { return Logger().should_log(ToSpd(level)); }

}  // namespace ringmaster::log
