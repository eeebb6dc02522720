// A connection to the database that keeps the statements it has compiled.
#ifndef SPARSEFW_SERVER_STORAGE_CONNECTION_H_
#define SPARSEFW_SERVER_STORAGE_CONNECTION_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "SQLiteCpp/SQLiteCpp.h"

namespace sparsefw::server {

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
  // `sql` must be one of the program's few texts.
  Use Prepare(std::string sql) {
    auto found = idle_.extract(sql);
    if (found.empty()) {
      auto compiled = std::make_unique<SQLite::Statement>(*this, sql);
      return {this, std::move(sql), std::move(compiled)};
    }
    found.mapped()->clearBindings();
    return {this, std::move(sql), std::move(found.mapped())};
  }

 private:
  std::map<std::string, std::unique_ptr<SQLite::Statement>> idle_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_STORAGE_CONNECTION_H_
