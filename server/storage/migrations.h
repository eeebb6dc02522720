// The schema of the database, version by version.
#ifndef SPARSEFW_SERVER_STORAGE_MIGRATIONS_H_
#define SPARSEFW_SERVER_STORAGE_MIGRATIONS_H_

#include <span>

namespace sparsefw::server {

// Migration i brings version i to i + 1. Never edited once released: a change of
// the schema is one more entry.
std::span<const char* const> Migrations();

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_STORAGE_MIGRATIONS_H_
