// A shared library, but no CUDA module: it lacks the function.
extern "C" __attribute__((visibility("default"))) int sparsefw_something_else();
extern "C" int sparsefw_something_else() { return 0; }
