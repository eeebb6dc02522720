#include "client/cpp/src/credentials/pem.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

namespace sparsefw::client::internal {
namespace {

// As gRPC reads them: with an empty password, which also keeps OpenSSL from asking on the terminal.
template <auto Read>
auto First(std::string_view pem) {
  const std::shared_ptr<BIO> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())),
                                 BIO_free_all);
  char password[] = "";
  auto* object = Read(bio.get(), nullptr, nullptr, password);
  ERR_clear_error();
  return object;
}

std::shared_ptr<X509> FirstCertificate(std::string_view pem) {
  return {First<&PEM_read_bio_X509_AUX>(pem), X509_free};
}

std::shared_ptr<EVP_PKEY> FirstKey(std::string_view pem) {
  return {First<&PEM_read_bio_PrivateKey>(pem), EVP_PKEY_free};
}

}  // namespace

bool HoldsCertificate(std::string_view pem) { return FirstCertificate(pem) != nullptr; }

bool HoldsPrivateKey(std::string_view pem) { return FirstKey(pem) != nullptr; }

bool IsPair(std::string_view certificate_pem, std::string_view key_pem) {
  const auto certificate = FirstCertificate(certificate_pem);
  const auto key = FirstKey(key_pem);
  const bool pair = certificate != nullptr && key != nullptr &&
                    X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  return pair;
}

}  // namespace sparsefw::client::internal
