// SPDX-License-Identifier: Apache-2.0

#include "operator/identity/x509.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <memory>

namespace ringmaster::identity {
namespace {

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using Bio = std::unique_ptr<BIO, Deleter<BIO_free_all>>;
using Extension = std::unique_ptr<X509_EXTENSION, Deleter<X509_EXTENSION_free>>;
using Store = std::unique_ptr<X509_STORE, Deleter<X509_STORE_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, Deleter<X509_STORE_CTX_free>>;

constexpr auto kClockDifference = std::chrono::hours(1);

Error OpensslError(const std::string& what) {
  char text[256] = "no reason given";
  if (const unsigned long error = ERR_get_error(); error != 0) ERR_error_string_n(error, text, sizeof text);
  ERR_clear_error();
  return Error{Code::kInternal, what + ": " + text};
}

std::string Text(const Bio& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

Bio Reading(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

Certificate ReadCertificate(const std::string& pem) {
  Certificate certificate(PEM_read_bio_X509(Reading(pem).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return certificate;
}
Key ReadKey(const std::string& pem) {
  Key key(PEM_read_bio_PrivateKey(Reading(pem).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return key;
}

bool IsAddress(const std::string& name) {
  ASN1_OCTET_STRING* const address = a2i_IPADDRESS(name.c_str());
  ERR_clear_error();
  ASN1_OCTET_STRING_free(address);
  return address != nullptr;
}

Status AddExtension(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str()));
  if (!extension || X509_add_ext(certificate, extension.get(), -1) != 1)
    return OpensslError("extension " + value);
  return Ok();
}

void SetTime(ASN1_TIME* field, kube::WallTime time) {
  ASN1_TIME_set(field, std::chrono::system_clock::to_time_t(time));
}

// A certificate with a fresh key, serial number, name and validity; not signed yet.
struct Draft {
  Certificate certificate;
  Key key;
};
Result<Draft> MakeDraft(const std::string& common_name, kube::WallTime from, kube::WallTime until) {
  Draft draft{Certificate(X509_new()), Key(EVP_EC_gen("P-256"))};
  if (!draft.certificate || !draft.key) return OpensslError("new certificate");
  X509* const certificate = draft.certificate.get();
  X509_set_version(certificate, X509_VERSION_3);
  unsigned char serial[16];
  if (RAND_bytes(serial, sizeof serial) != 1) return OpensslError("randomness");
  serial[0] &= 0x7F;  // positive
  BIGNUM* const number = BN_bin2bn(serial, sizeof serial, nullptr);
  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));
  BN_free(number);
  SetTime(X509_getm_notBefore(certificate), from);
  SetTime(X509_getm_notAfter(certificate), until);
  X509_set_pubkey(certificate, draft.key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1, 0);
  return draft;
}

Result<KeyPair> Sign(const Draft& draft, EVP_PKEY* issuer_key) {
  if (X509_sign(draft.certificate.get(), issuer_key, EVP_sha256()) == 0) return OpensslError("sign");
  const Bio certificate(BIO_new(BIO_s_mem()));
  const Bio key(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(certificate.get(), draft.certificate.get()) != 1 ||
      PEM_write_bio_PrivateKey(key.get(), draft.key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return OpensslError("write PEM");
  return KeyPair{Text(certificate), Text(key)};
}

kube::WallTime ToWall(const ASN1_TIME* time) {
  tm parts{};
  ASN1_TIME_to_tm(time, &parts);
  return kube::WallTime(std::chrono::seconds(timegm(&parts)));
}

}  // namespace

Result<KeyPair> MakeAuthority(const std::string& name, kube::WallTime now, std::chrono::seconds lifetime) {
  RM_ASSIGN(const Draft draft, MakeDraft(name, now - kClockDifference, now + lifetime));
  X509* const certificate = draft.certificate.get();
  X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
  RM_TRY(AddExtension(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  RM_TRY(AddExtension(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign"));
  RM_TRY(AddExtension(certificate, certificate, NID_subject_key_identifier, "hash"));
  return Sign(draft, draft.key.get());
}

Result<KeyPair> MakeLeaf(const KeyPair& authority, const std::vector<std::string>& names, kube::WallTime now,
                         std::chrono::seconds lifetime) {
  const Certificate issuer = ReadCertificate(authority.cert_pem);
  const Key issuer_key = ReadKey(authority.key_pem);
  if (!issuer || !issuer_key)
    return Error{Code::kInvalid, "the authority's certificate or key is unreadable"};
  if (names.empty()) return Error{Code::kInvalid, "a certificate needs at least one name"};
  const kube::WallTime until = std::min(now + lifetime, ToWall(X509_get0_notAfter(issuer.get())));
  // A common name holds 64 characters. Clients ignore it when there are alternative names.
  RM_ASSIGN(const Draft draft, MakeDraft(names[0].substr(0, 64), now - kClockDifference, until));
  X509* const certificate = draft.certificate.get();
  X509_set_issuer_name(certificate, X509_get_subject_name(issuer.get()));
  std::string alternatives;
  for (const std::string& name : names)
    alternatives +=
        fmt::format("{}{}:{}", alternatives.empty() ? "" : ",", IsAddress(name) ? "IP" : "DNS", name);
  RM_TRY(AddExtension(certificate, issuer.get(), NID_basic_constraints, "critical,CA:FALSE"));
  RM_TRY(AddExtension(certificate, issuer.get(), NID_key_usage, "critical,digitalSignature"));
  RM_TRY(AddExtension(certificate, issuer.get(), NID_ext_key_usage, "serverAuth"));
  RM_TRY(AddExtension(certificate, issuer.get(), NID_subject_alt_name, alternatives));
  RM_TRY(AddExtension(certificate, issuer.get(), NID_authority_key_identifier, "keyid"));
  return Sign(draft, issuer_key.get());
}

Result<kube::WallTime> ExpiryOf(const std::string& cert_pem) {
  const Certificate certificate = ReadCertificate(cert_pem);
  if (!certificate) return Error{Code::kInvalid, "no certificate in PEM form"};
  return ToWall(X509_get0_notAfter(certificate.get()));
}

bool IsGoodLeaf(const KeyPair& leaf, const std::string& authority_pem, const std::vector<std::string>& names,
                kube::WallTime now) {
  const Certificate certificate = ReadCertificate(leaf.cert_pem);
  const Certificate authority = ReadCertificate(authority_pem);
  const Key key = ReadKey(leaf.key_pem);
  if (!certificate || !authority || !key || X509_check_private_key(certificate.get(), key.get()) != 1) {
    ERR_clear_error();
    return false;
  }
  const Store store(X509_STORE_new());
  X509_STORE_add_cert(store.get(), authority.get());
  const StoreContext context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), certificate.get(), nullptr);
  X509_STORE_CTX_set_time(context.get(), 0, std::chrono::system_clock::to_time_t(now));
  bool good = X509_verify_cert(context.get()) == 1;
  for (const std::string& name : names) {
    good = good && (IsAddress(name) ? X509_check_ip_asc(certificate.get(), name.c_str(), 0) == 1
                                    : X509_check_host(certificate.get(), name.c_str(), 0, 0, nullptr) == 1);
  }
  ERR_clear_error();
  return good;
}

}  // namespace ringmaster::identity
