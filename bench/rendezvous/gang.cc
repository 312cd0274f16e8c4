// SPDX-License-Identifier: Apache-2.0

#include "bench/rendezvous/gang.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "rendezvous/codec.h"

namespace ringmaster::bench {
namespace {

using agent::CoordinatorLink;

constexpr Duration kPingInterval = milliseconds(200);
constexpr size_t kSmallFrame = 2048;  // a larger one is a NewGeneration: decoding it is the trainers' work
constexpr int kMostConnecting = 64;

}  // namespace

std::string JobName(int job) { return fmt::format("bench/job-{}", job); }

struct Gang::Link {
  int job = 0;
  std::string pod;
  std::vector<int32_t> slots;
  std::unique_ptr<CoordinatorLink> link;
  std::string addresses;
  bool greeted = false;
  bool shared = false;
  size_t welcome = 0;
  size_t members = 0;

  std::string Agent(int32_t slot) const { return fmt::format("{}-{}-0123456789abcdef-agent", pod, slot); }
  std::string Member(int32_t slot) const { return Agent(slot) + ".1"; }
};

Gang::Gang(const GangOptions& options) : options_(options) {
  for (int job = 0; job < options_.jobs; ++job) {
    for (int pod = 0; pod < options_.pods; ++pod) {
      for (int32_t slot = 0; slot < (options_.separate ? options_.slots : 1); ++slot) {
        Link& link = *links_.emplace_back(std::make_unique<Link>());
        link.job = job;
        link.pod = fmt::format("job-{}-1-{}", job, pod);
        for (int32_t s = 0; s < options_.slots; ++s) {
          if (!options_.separate || s == slot) link.slots.push_back(s);
        }
        link.link = std::make_unique<CoordinatorLink>("127.0.0.1", options_.port, options_.ca_file);
      }
    }
  }
}

void Gang::Connect() {
  size_t next = 0;
  const auto up = [](const auto& link) { return link->welcome == link->slots.size(); };
  Serve([&] {
    const auto done = std::count_if(links_.begin(), links_.end(), up);
    for (; next < links_.size() && next < static_cast<size_t>(done + kMostConnecting); ++next)
      links_[next]->link->Connect(Now());
    return done == static_cast<std::ptrdiff_t>(links_.size());
  });
}

void Gang::Form(int job) {
  const std::string address(static_cast<size_t>(options_.address_bytes), 'a');
  for (const auto& link : links_) {
    if (link->job != job) continue;
    for (const int32_t slot : link->slots) {
      const rendezvous::Join join{link->Member(slot), address, {"job", "data", "gpu"}};
      Send(*link, {slot}, rendezvous::Encode(join));
    }
  }
  Serve([&] {
    return std::all_of(links_.begin(), links_.end(), [&](const auto& link) {
      return link->job != job || link->members == link->slots.size();
    });
  });
}

Duration Gang::Pause(Duration duration) {
  const Time until = Now() + duration;
  longest_pause_ = Now() - pinged_at_;
  Serve([&] { return Now() >= until; });
  return longest_pause_;
}

void Gang::Serve(const std::function<bool()>& done) {
  std::vector<pollfd> polled(links_.size());
  while (!done()) {
    for (size_t i = 0; i < links_.size(); ++i) polled[i] = links_[i]->link->PollFor();
    CHECK(::poll(polled.data(), polled.size(), 20) >= 0);
    const Time now = Now();
    for (size_t i = 0; i < links_.size(); ++i) {
      Link& link = *links_[i];
      if (polled[i].revents == 0) continue;
      const Status status = link.link->OnReady(polled[i].revents, now);
      CHECK(status.ok(), "{}: {}", link.pod, status.error().message);
      if (link.link->state() != CoordinatorLink::State::kUp) continue;
      if (!std::exchange(link.greeted, true)) OnUp(link);
      Read(link);
    }
    if (now >= ping_at_) Ping();
  }
}

void Gang::OnUp(Link& link) {
  const int32_t slot = link.slots.front();
  const rendezvous::Hello hello{JobName(link.job), link.pod, link.Agent(slot), "secret", 0, slot};
  Send(link, {slot}, rendezvous::Encode(hello));
}

void Gang::Read(Link& link) {
  while (true) {
    const auto frame = link.link->NextFrame();
    CHECK(frame.ok(), "{}", frame.error().message);
    if (!frame.value()) return;
    const size_t copies = std::max<size_t>(1, link.link->slots().size());
    const std::vector<int32_t> slots =
        link.link->slots().empty() ? std::vector<int32_t>{link.slots.front()} : link.link->slots();
    if ((*frame)->size() > kSmallFrame) {
      link.members += copies;
      continue;
    }
    const auto message = rendezvous::DecodeBody((*frame)->substr(4));
    CHECK(message.ok(), "{}", message.error().message);
    if (const auto* welcome = std::get_if<rendezvous::Welcome>(&*message)) {
      link.welcome += copies;
      if (link.slots.size() == 1 || std::exchange(link.shared, welcome->shared)) continue;
      CHECK(link.shared, "the server does not share connections");
      for (const int32_t slot : link.slots) {
        if (slot == link.slots.front()) continue;
        const rendezvous::Hello hello{JobName(link.job), link.pod, link.Agent(slot), "", 0, slot};
        Send(link, {slot}, rendezvous::Encode(hello));
      }
    } else if (const auto* prepare = std::get_if<rendezvous::Prepare>(&*message)) {
      for (const int32_t slot : slots) {
        rendezvous::MemberStatus status;
        status.generation = prepare->generation;
        status.member = link.Member(slot);
        Send(link, {slot}, rendezvous::Encode(status));
      }
    } else if (std::holds_alternative<rendezvous::NewGeneration>(*message)) {
      link.members += copies;
    } else if (const auto* exit = std::get_if<rendezvous::Exit>(&*message)) {
      CHECK(false, "{} must exit: {}", link.pod, exit->reason);
    }
  }
}

void Gang::Send(Link& link, const std::vector<int32_t>& slots, const std::string& frame) {
  const Status sent = link.link->SendRaw(link.shared ? rendezvous::EncodeRoute(slots) + frame : frame);
  CHECK(sent.ok(), "{}", sent.error().message);
}

// All pods ping at once, every 200 ms: that is the worst for the server. The first rank of each job reports
// two steps each time.
void Gang::Ping() {
  const Time now = Now();
  ping_at_ = now + kPingInterval;
  longest_pause_ = std::max(longest_pause_, now - pinged_at_);
  static const std::string ping = rendezvous::Encode(rendezvous::Ping{});
  rendezvous::Progress progress;
  for (int i = 0; i < 2; ++i) {
    rendezvous::StepRecord& record = progress.records.emplace_back();
    record.step = ++step_;
    record.samples = 1024;
    record.seconds = 0.1;
  }
  const std::string report = rendezvous::Encode(progress);
  for (const auto& link : links_) {
    if (link->welcome != link->slots.size()) continue;
    Send(*link, link->slots, ping);
    if (link->members > 0 && link->pod.ends_with("-1-0") && link->slots.front() == 0)
      Send(*link, {0}, report);
  }
  pinged_at_ = Now();
}

}  // namespace ringmaster::bench
