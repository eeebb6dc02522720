// Names in a request or response that its log line carries.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_CALL_SUBJECT_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_CALL_SUBJECT_H_

#include <string>

namespace sparsefw::server {

// Names as the client wrote them: neither checked nor bounded. Empty: none.
struct CallSubject {
  std::string request_id;
  std::string resource;  // "jobs/<id>", "tensors/<id>", "uploads/<id>"
};

// The name in a message, or that of the one resource in it; empty where it has none.
template <typename Message>
std::string ResourceOf(const Message& message) {
  if constexpr (requires { message.name(); }) {
    return message.name();
  } else if constexpr (requires {
                         message.upload().name();
                         message.tensor().name();
                       }) {
    return message.has_upload() ? message.upload().name() : message.tensor().name();
  } else {
    return "";
  }
}

template <typename Request>
CallSubject SubjectOf(const Request& request) {
  CallSubject subject;
  if constexpr (requires { request.request_id(); }) subject.request_id = request.request_id();
  subject.resource = ResourceOf(request);
  return subject;
}

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_CALL_SUBJECT_H_
