// Matchers and assertions for absl::Status and absl::StatusOr.
//
// There is no "is not OK" matcher on purpose: a test of an error names its
// code, and its reason and message where they are promised.
//
//   EXPECT_THAT(Solve(...), StatusIs(absl::StatusCode::kInvalidArgument));
//   EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, "NON_FINITE",
//                                "weights[3, 17]", "nan"));
//   EXPECT_THAT(status, IsOk());
//   SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask mask, TopScores(...));
#ifndef SPARSEFW_TESTS_TESTING_MATCHERS_H_
#define SPARSEFW_TESTS_TESTING_MATCHERS_H_

#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/reason.h"

namespace sparsefw::testing {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

// Describes a status with its reason; gtest alone would print a StatusOr as bytes.
inline std::string Describe(const absl::Status& status) {
  std::string text = status.ToString(absl::StatusToStringMode::kWithNoExtraData);
  const std::string reason = ReasonOf(status);
  return reason.empty() ? text : text + " (" + reason + ")";
}

class StatusIsMatcher {
 public:
  StatusIsMatcher(absl::StatusCode code, std::optional<std::string> reason,
                  std::vector<std::string> substrings)
      : code_(code), reason_(std::move(reason)), substrings_(std::move(substrings)) {}

  template <typename T>
  bool MatchAndExplain(const T& value, ::testing::MatchResultListener* listener) const {
    const absl::Status& status = StatusOf(value);
    *listener << "which is " << Describe(status);
    if (status.code() != code_) return false;
    if (reason_ && ReasonOf(status) != *reason_) return false;
    for (const std::string& substring : substrings_) {
      if (std::string_view(status.message().data(), status.message().size()).find(substring) ==
          std::string_view::npos) {
        *listener << ", whose message lacks \"" << substring << "\"";
        return false;
      }
    }
    return true;
  }
  void DescribeTo(std::ostream* os) const {
    *os << "has code " << absl::StatusCodeToString(code_);
    if (reason_) *os << ", reason \"" << *reason_ << "\"";
    for (const std::string& substring : substrings_)
      *os << ", a message with \"" << substring << "\"";
  }
  void DescribeNegationTo(std::ostream* os) const {
    *os << "not (";
    DescribeTo(os);
    *os << ")";
  }

 private:
  absl::StatusCode code_;
  std::optional<std::string> reason_;
  std::vector<std::string> substrings_;
};

inline ::testing::PolymorphicMatcher<StatusIsMatcher> StatusIs(absl::StatusCode code) {
  return ::testing::MakePolymorphicMatcher(StatusIsMatcher(code, std::nullopt, {}));
}

// The exact reason ("" means none attached) and any number of substrings of the message.
template <typename... Substrings>
::testing::PolymorphicMatcher<StatusIsMatcher> StatusIs(absl::StatusCode code,
                                                        std::string_view reason,
                                                        const Substrings&... substrings) {
  return ::testing::MakePolymorphicMatcher(
      StatusIsMatcher(code, std::string(reason), {std::string(substrings)...}));
}

inline ::testing::PolymorphicMatcher<StatusIsMatcher> IsOk() {
  return StatusIs(absl::StatusCode::kOk);
}

}  // namespace sparsefw::testing

#define SPARSEFW_ASSERT_OK(expression) ASSERT_THAT((expression), ::sparsefw::testing::IsOk())
#define SPARSEFW_EXPECT_OK(expression) EXPECT_THAT((expression), ::sparsefw::testing::IsOk())

#define SPARSEFW_TESTING_CONCAT_INNER(a, b) a##b
#define SPARSEFW_TESTING_CONCAT(a, b) SPARSEFW_TESTING_CONCAT_INNER(a, b)

// Only in functions that return void, as ASSERT_* itself.
#define SPARSEFW_ASSERT_OK_AND_ASSIGN(declaration, expression)                            \
  SPARSEFW_ASSERT_OK_AND_ASSIGN_IMPL(SPARSEFW_TESTING_CONCAT(sparsefw_result_, __LINE__), \
                                     declaration, expression)
#define SPARSEFW_ASSERT_OK_AND_ASSIGN_IMPL(result, declaration, expression)   \
  auto result = (expression);                                                 \
  ASSERT_TRUE(result.ok()) << ::sparsefw::testing::Describe(result.status()); \
  declaration = *std::move(result)

#endif  // SPARSEFW_TESTS_TESTING_MATCHERS_H_
