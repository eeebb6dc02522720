// Certificates for tests.
#ifndef SPARSEFW_TESTS_SERVER_IDENTITY_MAKE_CERTIFICATE_H_
#define SPARSEFW_TESTS_SERVER_IDENTITY_MAKE_CERTIFICATE_H_

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <string>

namespace sparsefw::server {

inline std::string TakeText(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);  // NOLINT: OpenSSL's type
  std::string text(data, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

struct CertificatePair {
  std::string certificate;
  std::string key;
  std::string encrypted_key;
};

// Self-signed, valid from `from` to `to` seconds from now.
inline CertificatePair MakeCertificate(const char* name, long from,
                                       long to) {  // NOLINT: OpenSSL's type
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  X509_gmtime_adj(X509_getm_notBefore(certificate), from);
  X509_gmtime_adj(X509_getm_notAfter(certificate), to);
  X509_set_pubkey(certificate, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
  X509_sign(certificate, key, EVP_sha256());
  CertificatePair pair;
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(bio, certificate);
  pair.certificate = TakeText(bio);
  bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  pair.key = TakeText(bio);
  bio = BIO_new(BIO_s_mem());
  char password[] = "secret";
  PEM_write_bio_PrivateKey(bio, key, EVP_aes_128_cbc(), nullptr, 0, nullptr, password);
  pair.encrypted_key = TakeText(bio);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return pair;
}

}  // namespace sparsefw::server

#endif  // SPARSEFW_TESTS_SERVER_IDENTITY_MAKE_CERTIFICATE_H_
