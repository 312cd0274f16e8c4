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
    MutexLock lock(mutex_);
    stop_ = true;
  }
  stopping_.NotifyAll();
  thread_.join();
}

bool CertificateManager::Wait(Duration pause) {
  const Time until = Now() + pause;
  MutexLock lock(mutex_);
  while (!stop_)
    if (!stopping_.WaitUntil(lock, until)) break;
  return !stop_;
}

void CertificateManager::Run() {
  do {
    while (!Sync())
      if (!Wait(kRetry)) return;
  } while (Wait(RenewalCheckDelay(*published_, kube::WallNow())));
}

bool CertificateManager::Sync() {
  // Waits for each answer: this thread has nothing else to do, and the client has a time limit.
  const auto ask = [](auto&& request) {
    auto promise = std::make_shared<std::promise<Result<Json>>>();
    auto answer = promise->get_future();
    request([promise](Result<Json> result) { promise->set_value(std::move(result)); });
    return answer.get();
  };
  const std::string& ns = options_.namespace_;
  const std::string& name = options_.secret_name;
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
    if (!current) log::Warn("secret={}/{} unreadable=true: creating new certificates", ns, name);
  }
  Result<Certificates> certificates =
      Renew(current, options_.names, options_.authority_life, kube::WallNow());
  if (!certificates.ok()) {
    log::Error("cannot create the rendezvous certificates: {}", certificates.error().message);
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
    options_.on_change(*published_);
  }
  return true;
}

}  // namespace ringmaster::identity
