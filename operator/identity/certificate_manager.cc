// SPDX-License-Identifier: Apache-2.0

#include "operator/identity/certificate_manager.h"

#include <future>
#include <utility>

#include "base/base64.h"
#include "base/log.h"

namespace ringmaster::identity {
namespace {

const kube::Resource kSecrets{"", "v1", "secrets"};
constexpr Duration kRetry = seconds(2);

Json ToSecret(const Certificates& certificates, const std::string& name, const std::string& revision) {
  Json data = Json::object();
  for (const auto& [key, value] : ToSecretData(certificates)) data[key] = EncodeBase64(value);
  Json metadata = {{"name", name}, {"labels", {{"app.kubernetes.io/managed-by", "ringmaster-operator"}}}};
  if (!revision.empty()) metadata["resourceVersion"] = revision;
  return {{"apiVersion", "v1"},
          {"kind", "Secret"},
          {"type", "Opaque"},
          {"metadata", std::move(metadata)},
          {"data", std::move(data)}};
}

std::map<std::string, std::string> DataOf(const Json& secret) {
  std::map<std::string, std::string> data;
  const Json encoded = secret.value("data", Json::object());
  if (!encoded.is_object()) return data;
  for (const auto& [key, value] : encoded.items()) {
    if (!value.is_string()) continue;
    if (auto text = DecodeBase64(value.get<std::string>()); text.ok()) data[key] = std::move(text).value();
  }
  return data;
}

}  // namespace

CertificateManager::CertificateManager(kube::ApiClient& api, Options options)
    : api_(api), options_(std::move(options)) {
  thread_ = std::thread([this] { Run(); });
}

CertificateManager::~CertificateManager() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopping_.notify_all();
  thread_.join();
}

bool CertificateManager::Wait(Duration pause) {
  std::unique_lock lock(mutex_);
  return !stopping_.wait_for(lock, pause, [&] { return stop_; });
}

void CertificateManager::Run() {
  do {
    while (!Look())
      if (!Wait(kRetry)) return;
  } while (Wait(RenewalCheckDelay(*published_, kube::WallNow())));
}

bool CertificateManager::Look() {
  // Answers are waited for: this thread has nothing else to do, and the client gives up by itself.
  const auto ask = [](auto&& request) {
    auto promise = std::make_shared<std::promise<Result<Json>>>();
    auto answer = promise->get_future();
    request([promise](Result<Json> result) { promise->set_value(std::move(result)); });
    return answer.get();
  };
  const auto& [ns, name, names, life, on_change] = options_;
  const Result<Json> secret = ask([&](auto done) { api_.Get(kSecrets, ns, name, std::move(done)); });
  if (!secret.ok() && secret.error().code != Code::kNotFound) {
    log::Warn("secret={}/{} read=failed error={}", ns, name, secret.error().message);
    return false;
  }
  std::optional<Certificates> current;
  std::string revision;
  if (secret.ok()) {
    current = FromSecretData(DataOf(secret.value()));
    const Json metadata = secret.value().value("metadata", Json::object());
    if (auto text = JsonString(metadata, "resourceVersion"); text.ok()) revision = text.value();
    if (!current) log::Warn("secret={}/{} unreadable=true: its certificates are made anew", ns, name);
  }
  Result<Certificates> certificates = Renew(current, names, life, kube::WallNow());
  if (!certificates.ok()) {
    log::Error("rendezvous certificates: {}", certificates.error().message);
    return false;
  }
  if (!current || certificates.value() != *current) {
    const Json object = ToSecret(certificates.value(), name, revision);
    const Result<Json> written = ask([&](auto done) {
      if (revision.empty())
        api_.Create(kSecrets, ns, object, std::move(done));
      else
        api_.Update(kSecrets, ns, name, "", object, std::move(done));
    });
    if (!written.ok()) {
      log::Warn("secret={}/{} write=failed error={}", ns, name, written.error().message);
      return false;
    }
    log::Info("secret={}/{} renewed=true", ns, name);
  }
  if (!published_ || *published_ != certificates.value()) {
    published_ = certificates.value();
    on_change(*published_);
  }
  return true;
}

}  // namespace ringmaster::identity
