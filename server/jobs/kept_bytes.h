// The bytes that a kept job counts for.
#ifndef SPARSEFW_SERVER_JOBS_KEPT_BYTES_H_
#define SPARSEFW_SERVER_JOBS_KEPT_BYTES_H_

#include <cstdint>

#include "server/jobs/job.h"

namespace sparsefw::server {

// An upper end of what the job takes in a database: its row with the record, the progress and the
// fingerprint of its request, its entries in indexes, and what pages leave empty. A job that has
// not ended counts with the room of its result, so that its end always fits.
int64_t KeptBytes(const Job& job);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_KEPT_BYTES_H_
