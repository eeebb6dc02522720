// The schema of the database, version by version.
#ifndef SPARSEFW_SERVER_STORAGE_MIGRATIONS_H_
#define SPARSEFW_SERVER_STORAGE_MIGRATIONS_H_

#include <span>

namespace SQLite {
class Database;
}

namespace sparsefw::server {

// `fill`, where there is one, runs after `sql` in the same transaction.
struct Migration {
  const char* sql = nullptr;
  void (*fill)(SQLite::Database& db) = nullptr;
};

// Migration i brings version i to i + 1. Never edited once released: a change of
// the schema is one more entry.
std::span<const Migration> Migrations();

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_STORAGE_MIGRATIONS_H_
