// Places among the tensors, of all and of a tenant; room that is held for results.

#include "gtest/gtest.h"
#include "tests/server/tensors/store_fixture.h"

namespace sparsefw::server {
namespace {

constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

class TensorRoomTest : public StoreFixture {
 protected:
  void SetUp() override {
    options_.limits_of = [this](std::string_view tenant) {
      return tenant == "eve" ? eve_ : TenantLimits();
    };
  }
  void Open(int64_t max_tensors, bool many_tenants = false) {
    options_.max_tensors = max_tensors;
    options_.many_tenants = many_tenants;
    OpenStore();
  }
  absl::Status Create(const Owner& owner) {
    return store_->CreateUpload(WeightOf(2), "", owner).status();
  }
  // How many until one is refused, and why.
  int64_t Fill(const Owner& owner, absl::Status* why) {
    int64_t created = 0;
    while ((*why = Create(owner)).ok()) ++created;
    return created;
  }
  absl::StatusOr<TensorInfo> Put(const Owner& owner, TensorRoom* room) {
    return store_->Put(WeightOf(2), BytesOf("ab"), owner, absl::InfiniteFuture(), room);
  }

  const Owner kEve = {"eve", ""};
  const Owner kBob = {"bob", ""};
  TenantLimits eve_;
};

TEST_F(TensorRoomTest, ResultsHaveTheirPlacesFromTheStart) {
  Open(5);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(TensorRoom room, store_->ReserveRoom({4, 2}, kBob));
  EXPECT_EQ(store_->usage().reserved, 2);
  EXPECT_EQ(store_->usage().max_tensors, 5);
  absl::Status why;
  EXPECT_EQ(Fill(kEve, &why), 3);
  EXPECT_THAT(why, StatusIs(kExhausted, "TOO_MANY_TENSORS", "max-tensors of 5", "there are 5"));
  EXPECT_EQ(ReasonMetadataOf(why).at("retry_delay_ms"), "1000");
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo first, Put(kBob, &room));
  ASSERT_THAT(Put(kBob, &room), IsOk());
  EXPECT_EQ(store_->usage().reserved, 0);
  EXPECT_EQ(store_->usage().tensors, 2);
  // Beyond what was reserved, which nothing asks for: still no reason to lose a result.
  ASSERT_THAT(Put(kBob, &room), IsOk());
  EXPECT_THAT(Create(kEve), StatusIs(kExhausted, "TOO_MANY_TENSORS", "there are 6"));
  EXPECT_THAT(Put(kBob, nullptr), StatusIs(kExhausted, "TOO_MANY_TENSORS"));
  SPARSEFW_ASSERT_OK(store_->DeleteTensor(first.name));
  EXPECT_THAT(Create(kEve), StatusIs(kExhausted, "TOO_MANY_TENSORS", "there are 5"));
}

TEST_F(TensorRoomTest, WhatIsNotUsedIsGivenBack) {
  Open(3);
  {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(TensorRoom room, store_->ReserveRoom({600, 3}, kBob));
    ASSERT_THAT(Put(kBob, &room), IsOk());
    EXPECT_THAT(Create(kBob), StatusIs(kExhausted, "TOO_MANY_TENSORS"));
    EXPECT_EQ(store_->usage().used_bytes, 600);
  }
  EXPECT_EQ(store_->usage().used_bytes, 2);
  absl::Status why;
  EXPECT_EQ(Fill(kBob, &why), 2);
}

TEST_F(TensorRoomTest, WhatNeverFitsIsSaidSo) {
  Open(3);
  const absl::Status many = store_->CheckRoom({6, 4});
  EXPECT_THAT(many, StatusIs(kExhausted, "TOO_MANY_TENSORS", "max-tensors of 3", "they are 4"));
  EXPECT_FALSE(ReasonMetadataOf(many).contains("retry_delay_ms"));
  EXPECT_THAT(store_->ReserveRoom({6, 4}, kBob), StatusIs(kExhausted, "TOO_MANY_TENSORS"));
  EXPECT_THAT(store_->CheckRoom({kBudget + 1, 1}), StatusIs(kExhausted, "TENSOR_TOO_LARGE"));
  SPARSEFW_EXPECT_OK(store_->CheckRoom({kBudget, 3}));
  EXPECT_EQ(store_->usage().reserved, 0);
}

// A job of an earlier process keeps what it was promised, also where flags have changed.
TEST_F(TensorRoomTest, WhatWasAcceptedIsKeptBeyondEveryLimit) {
  options_.disk_budget_bytes = 10;
  eve_.max_tensors = 1;
  eve_.max_tensor_bytes = 2;
  Open(2);
  ASSERT_THAT(Create(kEve), IsOk());
  ASSERT_THAT(Create(kBob), IsOk());
  TensorRoom room = store_->KeepRoom({2 * kBudget, 5}, kEve);
  EXPECT_EQ(store_->usage().reserved, 5);
  ASSERT_THAT(Put(kEve, &room), IsOk());
  EXPECT_THAT(Create(kBob), StatusIs(kExhausted, "TOO_MANY_TENSORS"));
  room = TensorRoom();
  EXPECT_EQ(store_->usage().used_bytes, 6);
  EXPECT_EQ(store_->usage().disk_used_bytes, 6);
}

TEST_F(TensorRoomTest, ATenantsTensorsAreLimited) {
  eve_.max_tensors = 3;
  Open(100, /*many_tenants=*/true);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(TensorRoom room, store_->ReserveRoom({2, 1}, kEve));
  absl::Status why;
  EXPECT_EQ(Fill(kEve, &why), 2);
  EXPECT_THAT(why, StatusIs(kExhausted, "QUOTA_TENSORS", "tenant eve", "max-tensors of 3",
                            "there are 3", "1 more"));
  const ReasonMetadata metadata = ReasonMetadataOf(why);
  EXPECT_EQ(metadata.at("quota"), "max-tensors");
  EXPECT_EQ(metadata.at("limit"), "3");
  EXPECT_EQ(metadata.at("current"), "3");
  EXPECT_EQ(metadata.at("retry_delay_ms"), "1000");
  EXPECT_EQ(store_->usage().used_bytes, 6) << "a refusal reserves nothing";
  const auto never = store_->ReserveRoom({8, 4}, kEve);
  EXPECT_THAT(never, StatusIs(kExhausted, "QUOTA_TENSORS"));
  EXPECT_FALSE(ReasonMetadataOf(never.status()).contains("retry_delay_ms"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo result, Put(kEve, &room));
  EXPECT_THAT(Create(kEve), StatusIs(kExhausted, "QUOTA_TENSORS"));
  SPARSEFW_ASSERT_OK(store_->DeleteTensor(result.name));
  EXPECT_THAT(Create(kEve), IsOk());
  eve_.max_tensors = 80;
  EXPECT_EQ(Fill(kEve, &why), 77) << "another limit counts at once, and more than half is allowed";
}

TEST_F(TensorRoomTest, NoTenantTakesTheLastPlaces) {
  Open(100, /*many_tenants=*/true);
  absl::Status why;
  EXPECT_EQ(Fill(kEve, &why), 50);
  EXPECT_THAT(why, StatusIs(kExhausted, "QUOTA_TENSORS", "at most 50, half of what others leave",
                            "there are 50"));
  EXPECT_EQ(ReasonMetadataOf(why).at("limit"), "50");
  EXPECT_EQ(Fill(kBob, &why), 25);
  EXPECT_EQ(Fill({"carol", ""}, &why), 12);
  EXPECT_THAT(Create(kEve), StatusIs(kExhausted, "QUOTA_TENSORS"));
  EXPECT_THAT(Create({"dave", ""}), IsOk());
}

TEST_F(TensorRoomTest, ATenantThatIsAloneHasThemAll) {
  Open(100);
  absl::Status why;
  EXPECT_EQ(Fill(kEve, &why), 100);
  EXPECT_THAT(why, StatusIs(kExhausted, "TOO_MANY_TENSORS"));
}

}  // namespace
}  // namespace sparsefw::server
