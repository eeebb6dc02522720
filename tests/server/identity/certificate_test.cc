#include "server/identity/certificate.h"

#include <string>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/server/identity/make_certificate.h"
#include "tests/testing/matchers.h"

namespace sparsefw::server {
namespace {

using testing::IsOk;
using testing::StatusIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(CertificateTest, Facts) {
  const absl::Time before = absl::FromUnixSeconds(absl::ToUnixSeconds(absl::Now()));
  const CertificatePair pair = MakeCertificate("server", -60, 3600);
  const absl::Time after = absl::Now();
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const CertificateFacts facts, ReadCertificates(pair.certificate));
  EXPECT_EQ(facts.subject, "CN=server");
  EXPECT_GE(facts.not_before, before - absl::Seconds(60));
  EXPECT_LE(facts.not_before, after - absl::Seconds(60));
  EXPECT_GE(facts.not_after, before + absl::Seconds(3600));
  EXPECT_LE(facts.not_after, after + absl::Seconds(3600));
}

TEST(CertificateTest, OfAChainTheFirst) {
  const CertificatePair one = MakeCertificate("one", 0, 60);
  const CertificatePair two = MakeCertificate("two", 0, 60);
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
  const CertificatePair pair = MakeCertificate("server", 0, 60);
  for (const std::string& text : {std::string(), std::string("certificate"), pair.key,
                                  pair.certificate.substr(0, pair.certificate.size() / 2)}) {
    EXPECT_THAT(ReadCertificates(text), StatusIs(kInvalid, "", "must hold a certificate"));
    EXPECT_THAT(CheckKeyPair(text, pair.key), StatusIs(kInvalid, "", "must hold a certificate"));
  }
}

TEST(CertificateTest, KeysThatCannotBeUsed) {
  const CertificatePair pair = MakeCertificate("server", 0, 60);
  EXPECT_THAT(CheckKeyPair(pair.certificate, pair.key), IsOk());
  EXPECT_THAT(CheckKeyPair(pair.certificate, MakeCertificate("server", 0, 60).key),
              StatusIs(kInvalid, "", "that of the certificate"));
  // Without a question on the terminal.
  for (const std::string& key : {std::string(), pair.certificate, pair.encrypted_key}) {
    EXPECT_THAT(CheckKeyPair(pair.certificate, key), StatusIs(kInvalid, "", "unencrypted"));
  }
}

}  // namespace
}  // namespace sparsefw::server
