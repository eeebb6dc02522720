#include "server/identity/certificate.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <ctime>
#include <memory>

#include "sparsefw/status_macros.h"

namespace sparsefw::server {
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

Bio Over(std::string_view text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Keeps OpenSSL from asking on the terminal.
int NoPassword(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) { return -1; }

absl::StatusOr<Certificate> First(BIO* bio) {
  Certificate certificate(PEM_read_bio_X509(bio, nullptr, &NoPassword, nullptr));
  ERR_clear_error();
  if (certificate == nullptr) {
    return absl::InvalidArgumentError("must hold a certificate in PEM; none can be read");
  }
  return certificate;
}

absl::Time ToTime(const ASN1_TIME* time) {
  std::tm calendar = {};
  if (ASN1_TIME_to_tm(time, &calendar) != 1) return absl::InfinitePast();
  return absl::FromTimeT(timegm(&calendar));
}

std::string SubjectOf(const X509* certificate) {
  const Bio text(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(text.get(), X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253);
  char* data = nullptr;
  const long size = BIO_get_mem_data(text.get(), &data);  // NOLINT: OpenSSL's type
  return size > 0 ? std::string(data, static_cast<size_t>(size)) : "";
}

}  // namespace

absl::StatusOr<CertificateFacts> ReadCertificates(std::string_view pem) {
  const Bio bio = Over(pem);
  SPARSEFW_ASSIGN_OR_RETURN(const Certificate certificate, First(bio.get()));
  while (true) {
    const Certificate next(PEM_read_bio_X509(bio.get(), nullptr, &NoPassword, nullptr));
    const unsigned long error = ERR_peek_last_error();  // NOLINT: OpenSSL's type
    ERR_clear_error();
    if (next != nullptr) continue;
    if (ERR_GET_REASON(error) == PEM_R_NO_START_LINE) break;  // the end
    return absl::InvalidArgumentError("holds a certificate that cannot be read after the first");
  }
  return CertificateFacts{SubjectOf(certificate.get()),
                          ToTime(X509_get0_notBefore(certificate.get())),
                          ToTime(X509_get0_notAfter(certificate.get()))};
}

absl::Status CheckKeyPair(std::string_view certificate_pem, std::string_view key_pem) {
  const Bio certificates = Over(certificate_pem);
  SPARSEFW_ASSIGN_OR_RETURN(const Certificate certificate, First(certificates.get()));
  const Bio keys = Over(key_pem);
  const Key key(PEM_read_bio_PrivateKey(keys.get(), nullptr, &NoPassword, nullptr));
  const bool matches = key != nullptr && X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (key == nullptr) {
    return absl::InvalidArgumentError("the key must be an unencrypted private key in PEM");
  }
  if (!matches) return absl::InvalidArgumentError("the key must be that of the certificate");
  return absl::OkStatus();
}

}  // namespace sparsefw::server
