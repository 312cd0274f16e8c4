// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/pem.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

namespace ringmaster::kube {
namespace {

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Bio = std::unique_ptr<BIO, Free>;
using Certificate = std::unique_ptr<X509, Free>;
using Key = std::unique_ptr<EVP_PKEY, Free>;

Bio Open(const std::string& text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

// Without this callback OpenSSL asks for a pass phrase on the terminal.
int NoPassPhrase(char*, int, int, void*) { return -1; }

}  // namespace

Status CheckCertificates(const std::string& pem) {
  ERR_clear_error();
  const Bio bio = Open(pem);
  int count = 0;
  while (const Certificate certificate{PEM_read_bio_X509_AUX(bio.get(), nullptr, NoPassPhrase, nullptr)})
    ++count;
  // The end of the text is reported as "no start line".
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!at_end) return Error{Code::kInvalid, "contains an unreadable certificate"};
  if (count == 0) return Error{Code::kInvalid, "holds no PEM certificate (-----BEGIN CERTIFICATE-----)"};
  return Ok();
}

Status CheckKeyPair(const std::string& cert_pem, const std::string& key_pem) {
  if (Status certificates = CheckCertificates(cert_pem); !certificates.ok())
    return certificates.error().In("client certificate");
  const Bio cert_bio = Open(cert_pem);
  const Certificate certificate(PEM_read_bio_X509_AUX(cert_bio.get(), nullptr, NoPassPhrase, nullptr));
  const Bio key_bio = Open(key_pem);
  const Key key(PEM_read_bio_PrivateKey(key_bio.get(), nullptr, NoPassPhrase, nullptr));
  ERR_clear_error();
  if (!key) return Error{Code::kInvalid, "client key: holds no PEM private key, or one with a pass phrase"};
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    ERR_clear_error();
    return Error{Code::kInvalid, "client key: is not the key of the client certificate"};
  }
  return Ok();
}

}  // namespace ringmaster::kube
