// SPDX-License-Identifier: Apache-2.0

#include "tests/unit/kube_client/certificates.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <memory>

#include "base/check.h"

namespace ringmaster::kube {
namespace {

struct Free {
  void operator()(BIO* value) const { BIO_free(value); }
  void operator()(X509* value) const { X509_free(value); }
  void operator()(EVP_PKEY* value) const { EVP_PKEY_free(value); }
  void operator()(X509_EXTENSION* value) const { X509_EXTENSION_free(value); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<size_t>(size)};
}

Owned<BIO> Reader(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

void AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Owned<X509_EXTENSION> extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  CHECK(extension && X509_add_ext(certificate, extension.get(), -1) == 1, "extension {}", value);
}

// Signed by `authority`, or by itself when there is none.
TestIdentity Make(const TestIdentity* authority, const std::string& subject,
                  const std::vector<std::string>& names) {
  static std::atomic<long> serial{1};
  const Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  const Owned<X509> certificate(X509_new());
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial++);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 24 * 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(subject.c_str()), -1, -1, 0);
  Owned<X509> issuer;
  Owned<EVP_PKEY> issuer_key;
  if (authority != nullptr) {
    issuer.reset(PEM_read_bio_X509(Reader(authority->cert_pem).get(), nullptr, nullptr, nullptr));
    issuer_key.reset(PEM_read_bio_PrivateKey(Reader(authority->key_pem).get(), nullptr, nullptr, nullptr));
  }
  X509* signer = issuer ? issuer.get() : certificate.get();
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(signer));
  AddExtension(certificate.get(), signer, NID_basic_constraints,
               authority == nullptr ? "critical,CA:TRUE" : "CA:FALSE");
  if (authority == nullptr) AddExtension(certificate.get(), signer, NID_key_usage, "critical,keyCertSign");
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ",") + name;
  if (!list.empty()) AddExtension(certificate.get(), signer, NID_subject_alt_name, list);
  CHECK(X509_sign(certificate.get(), issuer_key ? issuer_key.get() : key.get(), EVP_sha256()) > 0);

  const Owned<BIO> cert_out(BIO_new(BIO_s_mem()));
  const Owned<BIO> key_out(BIO_new(BIO_s_mem()));
  CHECK(PEM_write_bio_X509(cert_out.get(), certificate.get()) == 1);
  CHECK(PEM_write_bio_PrivateKey(key_out.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1);
  return {TextOf(cert_out.get()), TextOf(key_out.get())};
}

}  // namespace

TestIdentity MakeAuthority(const std::string& name) { return Make(nullptr, name, {}); }

TestIdentity Issue(const TestIdentity& authority, const std::string& subject,
                   const std::vector<std::string>& names) {
  return Make(&authority, subject, names);
}

}  // namespace ringmaster::kube
