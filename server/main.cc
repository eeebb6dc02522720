#include "server/app/run_server.h"

int main(int argc, char** argv) { return sparsefw::server::RunServer(argc, argv); }
