// FILE[:TENSOR] of the command line, and names of tensors on the server.
#ifndef SPARSEFW_CLIENT_CLI_FILE_REF_H_
#define SPARSEFW_CLIENT_CLI_FILE_REF_H_

#include <string>
#include <string_view>

namespace sparsefw::cli {

struct FileRef {
  std::string path;
  std::string tensor;  // empty: the only one of the file
  friend bool operator==(const FileRef&, const FileRef&) = default;
};

// Paths and tensor names may both contain colons. The whole text is the path
// if such a file exists; else the longest part before a colon that is a file;
// else the text is cut at its last colon.
FileRef ParseFileRef(std::string_view text);

// "tensors/<id>", what `--keep-tensors` says that it kept. A file of that name
// is meant where there is one.
bool IsTensorName(std::string_view text);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_FILE_REF_H_
