#include "server/identity/certificate.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <string>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/testing/matchers.h"

namespace sparsefw::server {
namespace {

using testing::IsOk;
using testing::StatusIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);  // NOLINT: OpenSSL's type
  std::string text(data, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

struct Pair {
  std::string certificate;
  std::string key;
  std::string encrypted_key;
};

// Self-signed, valid from `from` to `to` seconds from now.
Pair Make(const char* name, long from, long to) {  // NOLINT: OpenSSL's type
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
  Pair pair;
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(bio, certificate);
  pair.certificate = TextOf(bio);
  bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  pair.key = TextOf(bio);
  bio = BIO_new(BIO_s_mem());
  char password[] = "secret";
  PEM_write_bio_PrivateKey(bio, key, EVP_aes_128_cbc(), nullptr, 0, nullptr, password);
  pair.encrypted_key = TextOf(bio);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return pair;
}

TEST(CertificateTest, Facts) {
  const Pair pair = Make("server", -60, 3600);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const CertificateFacts facts, ReadCertificates(pair.certificate));
  EXPECT_EQ(facts.subject, "CN=server");
  const absl::Time now = absl::Now();
  EXPECT_LT(absl::AbsDuration(facts.not_before - (now - absl::Seconds(60))), absl::Seconds(5));
  EXPECT_LT(absl::AbsDuration(facts.not_after - (now + absl::Seconds(3600))), absl::Seconds(5));
}

TEST(CertificateTest, OfAChainTheFirst) {
  const Pair one = Make("one", 0, 60);
  const Pair two = Make("two", 0, 60);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const CertificateFacts facts,
                                ReadCertificates("text\n" + one.certificate + two.certificate));
  EXPECT_EQ(facts.subject, "CN=one");
  EXPECT_THAT(CheckKeyPair(one.certificate + two.certificate, one.key), IsOk());
  EXPECT_THAT(CheckKeyPair(one.certificate + two.certificate, two.key), StatusIs(kInvalid));
  std::string broken = one.certificate + two.certificate;
  broken[one.certificate.size() + 60] = '!';
  EXPECT_THAT(ReadCertificates(broken), StatusIs(kInvalid, "", "after the first"));
}

TEST(CertificateTest, WhatIsNoCertificate) {
  const Pair pair = Make("server", 0, 60);
  for (const std::string& text : {std::string(), std::string("certificate"), pair.key,
                                  pair.certificate.substr(0, pair.certificate.size() / 2)}) {
    EXPECT_THAT(ReadCertificates(text), StatusIs(kInvalid, "", "must hold a certificate"));
    EXPECT_THAT(CheckKeyPair(text, pair.key), StatusIs(kInvalid, "", "must hold a certificate"));
  }
}

TEST(CertificateTest, KeysThatCannotBeUsed) {
  const Pair pair = Make("server", 0, 60);
  EXPECT_THAT(CheckKeyPair(pair.certificate, pair.key), IsOk());
  EXPECT_THAT(CheckKeyPair(pair.certificate, Make("server", 0, 60).key),
              StatusIs(kInvalid, "", "that of the certificate"));
  // Without a question on the terminal.
  for (const std::string& key : {std::string(), pair.certificate, pair.encrypted_key}) {
    EXPECT_THAT(CheckKeyPair(pair.certificate, key), StatusIs(kInvalid, "", "unencrypted"));
  }
}

}  // namespace
}  // namespace sparsefw::server
