#include "server/storage/connection.h"

namespace sparsefw::server {

Connection::Use::~Use() {
  // The error of a step is that of its caller already.
  static_cast<void>(statement_->tryReset());
  owner_.idle_[sql_] = std::move(statement_);
}

Connection::Use Connection::Prepare(std::string sql) {
  auto found = idle_.extract(sql);
  if (found.empty()) {
    auto compiled = std::make_unique<SQLite::Statement>(*this, sql);
    return {this, std::move(sql), std::move(compiled)};
  }
  found.mapped()->clearBindings();
  return {this, std::move(sql), std::move(found.mapped())};
}

}  // namespace sparsefw::server
