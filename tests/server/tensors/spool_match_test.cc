#include "server/tensors/store/spool_match.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tensors/catalog/tensor_catalog.h"
#include "tests/testing/matchers.h"

namespace sparsefw::server {
namespace {

using testing::IsOk;
using testing::StatusIs;

SpoolMatch Found(const std::string& owner, int64_t kept, int64_t orphans, int64_t missing = 0) {
  return {"/spool", owner, "mine", kept, orphans, 10 * orphans, missing};
}

const auto kRefused =
    StatusIs(absl::StatusCode::kFailedPrecondition, "SPOOL_MISMATCH", "--discard-unmatched");

TEST(SpoolMatchTest, WhatAKillLeavesIsRemovedWithoutAQuestion) {
  EXPECT_THAT(CheckMatch(Found("", 0, 0)), IsOk()) << "a first start";
  EXPECT_THAT(CheckMatch(Found("mine", 0, 1)), IsOk());
  EXPECT_THAT(CheckMatch(Found("mine", 0, 2 * kDeletedAtOnce)), IsOk());
  EXPECT_THAT(CheckMatch(Found("mine", 500, 400)), IsOk());
  EXPECT_THAT(CheckMatch(Found("mine", 1, 0, 2)), IsOk());
  EXPECT_THAT(CheckMatch(Found("", 5, 4)), IsOk()) << "of version 1";
}

TEST(SpoolMatchTest, AStartThatWouldRemoveMoreThanItKeepsAsks) {
  EXPECT_THAT(CheckMatch(Found("mine", 64, 65)), kRefused) << "an older database";
  EXPECT_THAT(CheckMatch(Found("mine", 10, 0, 80)), kRefused) << "half of the spool is gone";
  EXPECT_THAT(CheckMatch(Found("", 0, 1)), kRefused) << "an empty database beside version 1";
  EXPECT_THAT(CheckMatch(Found("", 0, 0, 1)), kRefused) << "a disk that is not mounted";
}

TEST(SpoolMatchTest, ASpoolOfAnotherDatabaseIsLeftAlone) {
  EXPECT_THAT(CheckMatch(Found("another", 0, 3)),
              StatusIs(absl::StatusCode::kFailedPrecondition, "SPOOL_MISMATCH", "/spool",
                       "another database", "3 files of 30 bytes"));
  EXPECT_THAT(CheckMatch(Found("another", 7, 0, 1)), kRefused);
  EXPECT_THAT(CheckMatch(Found("another", 0, 0)), IsOk()) << "there is nothing to lose";
}

TEST(SpoolMatchTest, WhatAMemoryStoreLeavesIsNobodys) {
  EXPECT_THAT(CheckMatch(Found(kMemoryStore, 0, 100)), IsOk());
  EXPECT_THAT(CheckMatch(Found(kMemoryStore, 0, 0, 3)), kRefused) << "the records are somebody's";
  SpoolMatch memory = Found(kMemoryStore, 0, 100);
  memory.store = kMemoryStore;
  EXPECT_THAT(CheckMatch(memory), IsOk());
  memory.owner = "a database";
  EXPECT_THAT(CheckMatch(memory), kRefused);
  memory.owner = "";
  EXPECT_THAT(CheckMatch(memory), kRefused) << "of version 1";
}

}  // namespace
}  // namespace sparsefw::server
