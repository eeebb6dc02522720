// A connection to the database that keeps the statements it has compiled.
#ifndef SPARSEFW_SERVER_STORAGE_CONNECTION_H_
#define SPARSEFW_SERVER_STORAGE_CONNECTION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "SQLiteCpp/SQLiteCpp.h"
#include "absl/status/status.h"
#include "server/storage/database.h"

namespace sparsefw::server {

// The value of a column of bytes, where a string is one of text.
struct Blob {
  std::string_view bytes;
};

// For one thread at a time. All functions may throw SQLite::Exception.
class Connection : public SQLite::Database {
 public:
  using SQLite::Database::Database;

  // A statement for one use: without bindings, and reset when it goes, since one that is in the
  // middle of its rows would keep the transaction open. Must not outlive the connection.
  class Use {
   public:
    Use(Connection* owner, std::string sql, std::unique_ptr<SQLite::Statement> statement)
        : owner_(*owner), sql_(std::move(sql)), statement_(std::move(statement)) {}
    ~Use() {
      // The error of a step is that of its caller already.
      static_cast<void>(statement_->tryReset());
      owner_.idle_[sql_] = std::move(statement_);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

    SQLite::Statement& operator*() const { return *statement_; }
    SQLite::Statement* operator->() const { return statement_.get(); }

   private:
    Connection& owner_;
    std::string sql_;
    std::unique_ptr<SQLite::Statement> statement_;
  };

  // Compiles `sql` at its first use only: compiling takes several times as long as running it.
  // `sql` must be one of the program's few texts. Binds the values in order; nothing is null.
  template <typename... Values>
  Use Prepare(std::string sql, const Values&... values) {
    auto found = idle_.extract(sql);
    auto statement =
        found.empty() ? std::make_unique<SQLite::Statement>(*this, sql) : std::move(found.mapped());
    statement->clearBindings();
    int index = 0;
    (Bind(*statement, ++index, values), ...);
    return {this, std::move(sql), std::move(statement)};
  }

 private:
  static void Bind(SQLite::Statement& statement, int index, const auto& value) {
    statement.bind(index, value);
  }
  static void Bind(SQLite::Statement& statement, int index, std::string_view text) {
    statement.bind(index, std::string(text));
  }
  static void Bind(SQLite::Statement& statement, int index, Blob blob) {
    statement.bind(index, blob.bytes.data(), static_cast<int>(blob.bytes.size()));
  }
  template <typename Value>
  static void Bind(SQLite::Statement& statement, int index, const std::optional<Value>& value) {
    if (value.has_value()) Bind(statement, index, *value);
  }

  std::map<std::string, std::unique_ptr<SQLite::Statement>> idle_;
};

// Calls on_row(row) for each row of a query. Errors: Database::Read's.
template <typename OnRow, typename... Values>
absl::Status ReadRows(const Database& database, const OnRow& on_row, const std::string& sql,
                      const Values&... values) {
  return database.Read([&](Connection& db) {
    const Connection::Use select = db.Prepare(sql, values...);
    while (select->executeStep()) on_row(*select);
    return absl::OkStatus();
  });
}

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_STORAGE_CONNECTION_H_
