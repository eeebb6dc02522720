// Checks of PEM texts: gRPC would say nothing but that it cannot connect.
#ifndef SPARSEFW_CLIENT_SRC_CREDENTIALS_PEM_H_
#define SPARSEFW_CLIENT_SRC_CREDENTIALS_PEM_H_

#include <string_view>

namespace sparsefw::client::internal {

bool HoldsCertificate(std::string_view pem);
// One that is not encrypted.
bool HoldsPrivateKey(std::string_view pem);
// The key is that of the first certificate.
bool IsPair(std::string_view certificate_pem, std::string_view key_pem);

}  // namespace sparsefw::client::internal

#endif  // SPARSEFW_CLIENT_SRC_CREDENTIALS_PEM_H_
