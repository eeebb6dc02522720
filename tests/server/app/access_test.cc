#include "server/app/access.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/identity/make_certificate.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_folder.h"

namespace sparsefw::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

constexpr long kDay = 24 * 3600;  // NOLINT: OpenSSL's type

class AccessTest : public ::testing::Test {
 protected:
  void Install(long days) {  // NOLINT: OpenSSL's type
    const CertificatePair pair = MakeCertificate("server", -60, days * kDay);
    testing::WriteFile(config_.tls_cert, pair.certificate);
    testing::WriteFile(config_.tls_key, pair.key);
  }
  // Returns the log.
  std::string Open() {
    CaptureStderr();
    auto access = Access::Open(config_, &logger_);
    EXPECT_THAT(access, testing::IsOk());
    access_ = *std::move(access);
    return GetCapturedStderr();
  }
  std::string Poll(absl::Duration later, bool all = false) {
    CaptureStderr();
    access_->Poll(all, absl::Now() + later);
    return GetCapturedStderr();
  }

  testing::TempFolder folder_;
  ServerConfig config_ = [this] {
    ServerConfig config;
    config.tls_cert = folder_.File("cert.pem");
    config.tls_key = folder_.File("key.pem");
    return config;
  }();
  Logger logger_{"info", "text"};
  std::unique_ptr<Access> access_;
};

TEST_F(AccessTest, WarnsOfACertificateThatExpiresWithinTwoWeeks) {
  Install(13);
  EXPECT_THAT(Open(), HasSubstr("warning certificate_expires_soon subject=\"CN=server\""));
  EXPECT_THAT(Poll(absl::Hours(1)), IsEmpty());
  EXPECT_THAT(Poll(absl::Hours(25)), HasSubstr("certificate_expires_soon")) << "once a day";
  EXPECT_THAT(Poll(absl::Hours(26)), IsEmpty());
  EXPECT_THAT(Poll(absl::Hours(14 * 24)), HasSubstr("certificate_not_valid"));
}

TEST_F(AccessTest, WarnsOnceAnOldCertificateComesCloseToItsEnd) {
  Install(20);
  EXPECT_THAT(Open(), HasSubstr("info certificate "));
  EXPECT_THAT(Poll(absl::Hours(5 * 24)), IsEmpty());
  EXPECT_THAT(Poll(absl::Hours(7 * 24)), HasSubstr("hours_left=311")) << "thirteen days";
}

TEST_F(AccessTest, TheExpiryIsThatOfTheCertificateInUse) {
  Install(13);
  Open();
  const absl::Time before = *access_->CertificateExpiry();
  EXPECT_NEAR(absl::ToDoubleHours(before - absl::Now()), 13 * 24, 1);
  Install(30);
  EXPECT_THAT(Poll(absl::ZeroDuration(), true), HasSubstr("info certificate "));
  EXPECT_NEAR(absl::ToDoubleHours(*access_->CertificateExpiry() - before), 17 * 24, 1);
  EXPECT_THAT(Poll(absl::Hours(25)), IsEmpty()) << "the new one has time";
  testing::WriteFile(config_.tls_cert, "broken");
  EXPECT_THAT(Poll(absl::ZeroDuration(), true), HasSubstr("reload_failed"));
  EXPECT_NEAR(absl::ToDoubleHours(*access_->CertificateExpiry() - before), 17 * 24, 1);
}

TEST_F(AccessTest, PlainTextHasNoExpiry) {
  config_.tls_cert = config_.tls_key = "";
  Open();
  EXPECT_EQ(access_->CertificateExpiry(), std::nullopt);
  EXPECT_THAT(Poll(absl::Hours(10'000), true), IsEmpty());
}

}  // namespace
}  // namespace sparsefw::server
