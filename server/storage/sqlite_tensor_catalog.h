// The catalog of tensors in the server's SQLite database.
#ifndef SPARSEFW_SERVER_STORAGE_SQLITE_TENSOR_CATALOG_H_
#define SPARSEFW_SERVER_STORAGE_SQLITE_TENSOR_CATALOG_H_

#include <memory>

#include "server/storage/database.h"
#include "server/tensors/catalog/tensor_catalog.h"

namespace sparsefw::server {

// `database` outlives it.
std::unique_ptr<TensorCatalog> NewSqliteTensorCatalog(Database* database);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_STORAGE_SQLITE_TENSOR_CATALOG_H_
