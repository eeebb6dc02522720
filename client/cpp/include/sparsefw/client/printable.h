// Text of others on a terminal: what a server or a file's name says must not steer it.
#ifndef SPARSEFW_CLIENT_PRINTABLE_H_
#define SPARSEFW_CLIENT_PRINTABLE_H_

#include <string>
#include <string_view>

namespace sparsefw::client {

// `text` on one line, with escapes instead of characters that change how a terminal or a reader
// shows the others: controls (C0, DEL, C1), line and paragraph separators, marks of direction, and
// bytes that are no UTF-8. "\n", "\t", "\r", "\x1b" and "\x9f" for bytes, "\u202e" for characters.
// Backslashes stay as they are, so escaping twice changes nothing.
std::string Printable(std::string_view text);

}  // namespace sparsefw::client

#endif  // SPARSEFW_CLIENT_PRINTABLE_H_
