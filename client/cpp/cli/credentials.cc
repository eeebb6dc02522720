#include "client/cpp/cli/credentials.h"

#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/src/credentials/small_file.h"
#include "client/cpp/src/rpc.h"
#include "sparsefw/client/error.h"
#include "sparsefw/client/tls.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cli {
namespace {

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  auto token = client::internal::ReadSmallFile(path);
  if (!token.ok()) return FileError(token.status());
  absl::StripAsciiWhitespace(&*token);
  if (token->empty()) return FileError(path + ": must hold a token; it is empty");
  if (!client::internal::IsToken(*token)) {  // the message does not show it
    return FileError(absl::StrFormat(
        "%s: must hold a token of printable ASCII characters without a space; got %d bytes with "
        "another character",
        path, token->size()));
  }
  return token;
}

// A hint for a connection that could not be made, where gRPC's message says why.
std::string_view ConnectHint(std::string_view message, const CommonOptions& common) {
  const auto has = [message](std::string_view part) {
    return message.find(part) != std::string_view::npos;
  };
  if (has("Connection refused") || has("No such file or directory")) {
    return "; is a server running there? sparsefw-server starts one";
  }
  if (has("Socket closed")) {
    if (common.tls_ca.empty()) return "; a server with TLS needs --tls-ca";
    return common.tls_cert.empty() ? "; the server may ask for a certificate, --tls-cert"
                                   : "; the server may not take the certificate of --tls-cert";
  }
  if (has("wrong version number")) return "; a server without TLS takes no --tls-ca";
  if (has("certificate verify failed")) {
    return "; the CA of --tls-ca has not signed the server's certificate, or it is of another host";
  }
  return "";
}

}  // namespace

absl::Status AddCredentials(const CommonOptions& common, client::ClientOptions* options) {
  if (!common.tls_ca.empty() || !common.tls_cert.empty()) {
    auto credentials = client::TlsCredentials({common.tls_ca, common.tls_cert, common.tls_key});
    if (!credentials.ok()) return FileError(credentials.status());
    options->credentials = *std::move(credentials);
  }
  options->token = common.token;
  if (common.token_file.empty()) return absl::OkStatus();
  SPARSEFW_ASSIGN_OR_RETURN(options->token, ReadToken(common.token_file));
  return absl::OkStatus();
}

absl::Status WithHint(const absl::Status& status, const CommonOptions& common) {
  std::string message(status.message());
  const std::string reason = ReasonOf(status);
  if (reason == "CREDENTIALS_MISSING") {
    message +=
        "; --token-file or SPARSEFW_TOKEN gives a token, --tls-cert and --tls-key a "
        "certificate";
  }
  if (reason == "UNREACHABLE") message += ConnectHint(message, common);
  return client::WithMessage(status, message);
}

}  // namespace sparsefw::cli
