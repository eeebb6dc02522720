#include "server/storage/connection.h"

#include <string>

#include "gtest/gtest.h"

namespace sparsefw::server {
namespace {

class ConnectionTest : public ::testing::Test {
 protected:
  ConnectionTest() { db_.exec("CREATE TABLE numbers (number INTEGER UNIQUE)"); }

  void Insert(int number) {
    const Connection::Use insert = db_.Prepare("INSERT INTO numbers VALUES (?)");
    insert->bind(1, number);
    insert->exec();
  }

  Connection db_{":memory:", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE};
};

constexpr char kAll[] = "SELECT number FROM numbers ORDER BY number";

TEST_F(ConnectionTest, AStatementIsCompiledOnce) {
  const SQLite::Statement* first = &*db_.Prepare(kAll);
  EXPECT_EQ(&*db_.Prepare(kAll), first);
  EXPECT_NE(&*db_.Prepare("SELECT 1"), first);
}

TEST_F(ConnectionTest, TheNextUseHasNoBindings) {
  Insert(7);
  {
    const Connection::Use insert = db_.Prepare("INSERT INTO numbers VALUES (?)");
    insert->exec();
  }
  EXPECT_EQ(db_.execAndGet("SELECT count(*) FROM numbers WHERE number IS NULL").getInt(), 1);
}

TEST_F(ConnectionTest, AUseInTheMiddleOfItsRowsEndsWithItsScope) {
  for (const int number : {1, 2, 3}) Insert(number);
  {
    const Connection::Use select = db_.Prepare(kAll);
    ASSERT_TRUE(select->executeStep());
  }
  db_.exec("DROP TABLE numbers");  // locked while a statement reads it
}

TEST_F(ConnectionTest, TwoUsesAtOnceAreTwoStatements) {
  for (const int number : {1, 2}) Insert(number);
  std::string pairs;
  const Connection::Use outer = db_.Prepare(kAll);
  while (outer->executeStep()) {
    const Connection::Use inner = db_.Prepare(kAll);
    while (inner->executeStep()) {
      pairs += outer->getColumn(0).getString() + inner->getColumn(0).getString() + " ";
    }
  }
  EXPECT_EQ(pairs, "11 12 21 22 ");
}

TEST_F(ConnectionTest, AStatementServesAgainAfterItsError) {
  Insert(1);
  EXPECT_THROW(Insert(1), SQLite::Exception);
  Insert(2);
  EXPECT_EQ(db_.execAndGet("SELECT count(*) FROM numbers").getInt(), 2);
}

TEST_F(ConnectionTest, AChangeOfTheSchemaReachesStatementsThatWereCompiledBefore) {
  Insert(1);
  db_.exec("ALTER TABLE numbers ADD COLUMN name TEXT DEFAULT 'one'");
  EXPECT_THROW(Insert(2), SQLite::Exception) << "one value, two columns";
  const Connection::Use select = db_.Prepare("SELECT * FROM numbers");
  ASSERT_TRUE(select->executeStep());
  EXPECT_EQ(select->getColumn(1).getString(), "one");
}

}  // namespace
}  // namespace sparsefw::server
