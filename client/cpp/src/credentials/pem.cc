#include "client/cpp/src/credentials/pem.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

namespace sparsefw::client::internal {
namespace {

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freer<&BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freer<&X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<&EVP_PKEY_free>>;

// As gRPC reads them: with an empty password, which also keeps OpenSSL from asking on the terminal.
template <auto Read>
auto First(std::string_view pem) {
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  char password[] = "";
  auto* object = Read(bio.get(), nullptr, nullptr, password);
  ERR_clear_error();
  return object;
}

Certificate FirstCertificate(std::string_view pem) {
  return Certificate(First<&PEM_read_bio_X509_AUX>(pem));
}

Key FirstKey(std::string_view pem) { return Key(First<&PEM_read_bio_PrivateKey>(pem)); }

}  // namespace

bool HoldsCertificate(std::string_view pem) { return FirstCertificate(pem) != nullptr; }

bool HoldsPrivateKey(std::string_view pem) { return FirstKey(pem) != nullptr; }

bool IsPair(std::string_view certificate_pem, std::string_view key_pem) {
  const Certificate certificate = FirstCertificate(certificate_pem);
  const Key key = FirstKey(key_pem);
  const bool pair = certificate != nullptr && key != nullptr &&
                    X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  return pair;
}

}  // namespace sparsefw::client::internal
