// The server program.
#ifndef SPARSEFW_SERVER_APP_RUN_SERVER_H_
#define SPARSEFW_SERVER_APP_RUN_SERVER_H_

namespace sparsefw::server {

// Prints one line to standard output once it serves, logs to standard error,
// drains on SIGTERM or SIGINT and exits at once on a second signal.
// Returns 0 after a drain, 2 on bad usage, 1 otherwise.
int RunServer(int argc, char** argv);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_RUN_SERVER_H_
