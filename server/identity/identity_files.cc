#include "server/identity/identity_files.h"

#include <utility>

#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

// An editor or a full disk makes such a file, on the way to another one.
absl::Status Empty(const std::string& file, const char* what) {
  return Invalid("CONFIGURATION_INVALID", "%s must have %s at least; it has none", file, what);
}

}  // namespace

absl::StatusOr<std::unique_ptr<IdentityFiles>> IdentityFiles::Open(const std::string& tokens,
                                                                   const std::string& tenants,
                                                                   Authenticator* authenticator) {
  std::unique_ptr<IdentityFiles> files(new IdentityFiles());
  if (!tokens.empty()) {
    const auto use = [authenticator, tokens](const std::string& text) -> absl::StatusOr<int64_t> {
      SPARSEFW_ASSIGN_OR_RETURN(TokenTable table, TokenTable::Parse(text, tokens));
      const auto count = static_cast<int64_t>(table.entries().size());
      if (count == 0) return Empty(tokens, "a token");
      authenticator->SetTokens(std::move(table));
      return count;
    };
    files->sources_.push_back({WatchedFile(tokens), use});
  }
  if (!tenants.empty()) {
    const auto use = [authenticator, tenants](const std::string& text) -> absl::StatusOr<int64_t> {
      SPARSEFW_ASSIGN_OR_RETURN(TenantTable table, TenantTable::Parse(text, tenants));
      const auto count = static_cast<int64_t>(table.size());
      if (table.empty()) return Empty(tenants, "a section");
      authenticator->SetTenants(std::move(table));
      return count;
    };
    files->sources_.push_back({WatchedFile(tenants), use});
  }
  for (Source& source : files->sources_) SPARSEFW_RETURN_IF_ERROR(Load(source).status);
  return files;
}

std::vector<Reload> IdentityFiles::Poll(bool all) {
  std::vector<Reload> reloads;
  for (Source& source : sources_) {
    if (all) source.file.AwaitSettled();
    if (source.file.SettledChange() || all) reloads.push_back(Load(source));
  }
  return reloads;
}

Reload IdentityFiles::Load(Source& source) {
  const absl::StatusOr<std::string> text = source.file.Read();
  const absl::StatusOr<int64_t> entries =
      text.ok() ? source.use(*text) : absl::StatusOr<int64_t>(text.status());
  return {source.file.path(), entries.status(), entries.value_or(0)};
}

}  // namespace sparsefw::server
