#include "client/cpp/cli/flags/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/flags/field_text.h"
#include "client/cpp/cli/flags/help.h"
#include "client/cpp/cli/flags/names.h"
#include "client/cpp/cli/flags/submit_flags.h"
#include "client/cpp/cli/flags/usage_errors.h"
#include "client/cpp/cli/inputs.h"
#include "client/cpp/cli/trace.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cli {
namespace {

struct CommonFlags {
  std::string timeout;
  std::string retry_for;
};

// Everything CLI11 writes into, alive until the command is made of it.
struct Flags {
  CommonOptions common;
  CommonFlags common_text;
  SubmitFlags submit_text;
  SubmitOptions submit;
  std::string job;
  OutputOptions output;
  GramOptions gram;
  std::string gram_dtype = "F32";
  std::vector<std::string> states;
  std::vector<std::string> labels;
  std::string limit;
};

constexpr char kExitCodes[] = R"(
Errors print one line. Exit codes: 0 success, 2 bad usage or file, 3 the
server refused or is unreachable, 4 the job failed, 5 cancelled or past its
deadline without a mask, 6 the server does not accept the credentials.)";

constexpr char kSubmitExamples[] = R"(
Examples:
  Prune a layer to 60 % per row with 400 line-search iterations:
    sparsefw-cli submit --weights layer.safetensors:weight \
        --gram layer.safetensors:gram --pattern per-row --sparsity 0.6 \
        --iterations 400 --step-rule line-search --out mask.safetensors

  Find the best alpha for 2:4, with swaps, and write the pruned weight as well:
    sparsefw-cli submit --weights w.safetensors --activations x.safetensors \
        --pattern 2:4 --swaps --sweep alpha=0,0.5,0.9 \
        --out mask.safetensors --out-weights pruned.safetensors)";

CLI::App& AddCommand(CLI::App& app, const char* name, const char* description) {
  CLI::App& command = *app.add_subcommand(name, description);
  command.get_help_ptr()->description("print this help")->group("Connection");
  return command;
}

// The flags of every command, after its own.
void AddCommonFlags(CLI::App& command, Flags& flags) {
  command.add_flag("--json", flags.common.json, "print one JSON object");
  GroupFlags(command, "Output");
  // Not CLI11's envname: it would also be read by the commands that were not given.
  command
      .add_option("--server", flags.common.server,
                  "address of the server, or several with commas between them, of which the first "
                  "that can be reached is used (or SPARSEFW_SERVER; default 127.0.0.1:50051)")
      ->type_name("HOST:PORT");
  command
      .add_option("--tls-ca", flags.common.tls_ca,
                  "CA of the server's certificate; connects by TLS (or SPARSEFW_TLS_CA)")
      ->type_name("FILE");
  command
      .add_option("--tls-cert", flags.common.tls_cert,
                  "certificate of this client, where the server asks for one")
      ->type_name("FILE");
  command.add_option("--tls-key", flags.common.tls_key, "its private key")->type_name("FILE");
  command
      .add_option("--token-file", flags.common.token_file,
                  "file with the token of this client (or SPARSEFW_TOKEN: the token)")
      ->type_name("FILE");
  command
      .add_option(
          "--timeout", flags.common_text.timeout,
          "how long to try to connect at first (default 5s, or --retry-for where that is less)")
      ->type_name("SPAN");
  command
      .add_option("--retry-for", flags.common_text.retry_for,
                  "how long to try again after a connection broke (default 1m)")
      ->type_name("SPAN");
  GroupFlags(command, "Connection");
}

CLI::App& AddJobCommand(CLI::App& app, const char* name, const char* description, Flags& flags) {
  CLI::App& command = AddCommand(app, name, description);
  command.add_option("JOB", flags.job, "jobs/<id>, or the id alone")->required();
  return command;
}

void AddQuietFlag(CLI::App& command, Flags& flags) {
  command.add_flag("-q,--quiet", flags.common.quiet, "show no progress");
}

void AddOverwriteFlag(CLI::App& command, bool& overwrite) {
  command.add_flag("--overwrite", overwrite, "replace output files that are there");
}

void AddOutputFlags(CLI::App& command, Flags& flags) {
  command.add_option("--out", flags.output.out, "the mask (safetensors)")->type_name("FILE");
  command.add_option("--out-weights", flags.output.out_weights, "the pruned weight (safetensors)")
      ->type_name("FILE");
  AddOverwriteFlag(command, flags.output.overwrite);
  command.add_flag("--keep-tensors", flags.output.keep_tensors,
                   "leave the uploaded tensors on the server when the job has ended");
  AddQuietFlag(command, flags);
}

void AddJobCommands(CLI::App& app, Flags& flags) {
  AddCommonFlags(AddJobCommand(app, "status", "print the state of a job", flags), flags);
  CLI::App& watch = AddJobCommand(app, "watch", "follow a job to its end", flags);
  AddQuietFlag(watch, flags);
  AddCommonFlags(watch, flags);
  CLI::App& fetch = AddJobCommand(app, "fetch", "wait for a job and download its mask", flags);
  AddOutputFlags(fetch, flags);
  fetch.get_option("--out")->required();
  AddCommonFlags(fetch, flags);
  AddCommonFlags(
      AddJobCommand(app, "cancel", "stop a job; its best mask so far can be fetched", flags),
      flags);
  AddCommonFlags(AddJobCommand(app, "delete", "remove a job that has ended, and its mask", flags),
                 flags);
}

void AddList(CLI::App& app, Flags& flags) {
  CLI::App& list = AddCommand(app, "list", "list jobs, newest first");
  list.add_option("--state", flags.states, "only jobs in this state; may be repeated")
      ->type_name(EnumWords(*v1::JobState_descriptor()))
      ->allow_extra_args(false);
  list.add_option("--label", flags.labels, "only jobs with this label; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  list.add_option("--limit", flags.limit, "at most so many (default: all)")->type_name("N");
  GroupFlags(list, "Filters");
  AddCommonFlags(list, flags);
}

void AddGram(CLI::App& app, Flags& flags) {
  CLI::App& gram = AddCommand(app, "gram", "sum activations into a Gram matrix");
  gram.add_option("--activations", flags.gram.activations,
                  "activations [tokens, d_in], of one or several files")
      ->type_name("FILE[:TENSOR]")
      ->required();
  GroupFlags(gram, "Inputs (safetensors or .npy; :TENSOR where a file holds several)");
  gram.add_option("--out", flags.gram.out, "the Gram matrix (safetensors)")
      ->type_name("FILE")
      ->required();
  AddOverwriteFlag(gram, flags.gram.overwrite);
  gram.add_option("--dtype", flags.gram_dtype, "default F32")->type_name("F32|F64");
  gram.add_flag("--keep-tensors", flags.gram.keep_tensors, "leave the Gram on the server, too");
  AddQuietFlag(gram, flags);
  AddCommonFlags(gram, flags);
}

void AddCommands(CLI::App& app, Flags& flags) {
  CLI::App& submit = AddCommand(app, "submit", "prune a layer");
  AddSubmitFlags(submit, flags.submit_text, flags.submit);
  AddOutputFlags(submit, flags);
  AddCommonFlags(submit, flags);
  submit.footer(std::string(kSubmitExamples) + "\n" + kExitCodes);
  AddJobCommands(app, flags);
  AddList(app, flags);
  AddGram(app, flags);
  AddCommonFlags(AddCommand(app, "info", "print the version, devices and limits of a server"),
                 flags);
  AddCommonFlags(AddCommand(app, "health", "ask a server over a new connection if it takes work"),
                 flags);
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT: no other thread yet
  return value == nullptr ? "" : value;
}

absl::Status FinishCommon(Flags& flags) {
  if (flags.common.server.empty()) flags.common.server = Environment("SPARSEFW_SERVER");
  if (flags.common.server.empty()) flags.common.server = "127.0.0.1:50051";
  if (flags.common.tls_ca.empty()) flags.common.tls_ca = Environment("SPARSEFW_TLS_CA");
  flags.common.traceparent = TraceparentFor(Environment("TRACEPARENT"));
  if (flags.common.token_file.empty()) flags.common.token = Environment("SPARSEFW_TOKEN");
  if (flags.common.tls_cert.empty() != flags.common.tls_key.empty()) {
    return UsageError("--tls-cert and --tls-key must be given together");
  }
  if (!flags.common_text.timeout.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(flags.common.timeout,
                              ParseTimeSpan("--timeout", flags.common_text.timeout));
  }
  if (!flags.common_text.retry_for.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(flags.common.retry_for,
                              ParseTimeSpan("--retry-for", flags.common_text.retry_for));
    // Who gives a broken connection two seconds does not want to wait longer for the first one.
    if (flags.common_text.timeout.empty()) {
      flags.common.timeout = std::min(flags.common.timeout, flags.common.retry_for);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOutput(const OutputOptions& output) {
  if (!output.out.empty() && !output.out_weights.empty() &&
      SameFile(output.out, output.out_weights)) {
    return UsageError(
        absl::StrFormat("--out and --out-weights must be two files; got \"%s\"", output.out));
  }
  return absl::OkStatus();
}

absl::StatusOr<Command> FinishSubmit(Flags& flags) {
  SubmitOptions& submit = flags.submit;
  submit.common = flags.common;
  submit.output = flags.output;
  SPARSEFW_RETURN_IF_ERROR(ApplySubmitFlags(flags.submit_text, submit));
  SPARSEFW_RETURN_IF_ERROR(CheckOutput(submit.output));
  return std::move(submit);
}

absl::StatusOr<Command> FinishList(Flags& flags) {
  ListOptions list;
  list.common = flags.common;
  for (const std::string& state : flags.states) {
    SPARSEFW_ASSIGN_OR_RETURN(const int parsed, ParseEnum(*v1::JobState_descriptor(), "--state",
                                                          absl::AsciiStrToLower(state)));
    list.states.push_back(static_cast<v1::JobState>(parsed));
  }
  SPARSEFW_ASSIGN_OR_RETURN(list.labels, ParseLabels(flags.labels));
  if (!flags.limit.empty() && (!absl::SimpleAtoi(flags.limit, &list.limit) || list.limit < 0)) {
    return UsageError(
        absl::StrFormat("--limit must be a whole number of at least 0; got \"%s\"", flags.limit));
  }
  return list;
}

absl::StatusOr<Command> FinishGram(Flags& flags) {
  flags.gram.common = flags.common;
  if (flags.gram_dtype != "F32" && flags.gram_dtype != "F64") {
    return UsageError(absl::StrFormat("--dtype must be F32 or F64; got \"%s\"", flags.gram_dtype));
  }
  flags.gram.dtype = flags.gram_dtype == "F64" ? DType::kF64 : DType::kF32;
  return std::move(flags.gram);
}

template <typename Options>
Options OfJob(const Flags& flags) {
  Options options;
  options.common = flags.common;
  options.job = absl::StartsWith(flags.job, "jobs/") ? flags.job : "jobs/" + flags.job;
  return options;
}

absl::StatusOr<Command> Finish(const std::string& command, Flags& flags) {
  SPARSEFW_RETURN_IF_ERROR(FinishCommon(flags));
  if (command == "submit") return FinishSubmit(flags);
  if (command == "list") return FinishList(flags);
  if (command == "gram") return FinishGram(flags);
  if (command == "info") return InfoOptions{flags.common};
  if (command == "health") return HealthOptions{flags.common};
  if (command == "status") return OfJob<StatusOptions>(flags);
  if (command == "watch") return OfJob<WatchOptions>(flags);
  if (command == "cancel") return OfJob<CancelOptions>(flags);
  if (command == "delete") return OfJob<DeleteOptions>(flags);
  FetchOptions fetch = OfJob<FetchOptions>(flags);
  fetch.output = flags.output;
  SPARSEFW_RETURN_IF_ERROR(CheckOutput(fetch.output));
  return fetch;
}

// "help submit" is "submit --help".
std::vector<std::string> Words(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty() || words[0] != "help") return words;
  if (words.size() == 1) return {"--help"};
  return {words[1], "--help"};
}

}  // namespace

absl::StatusOr<Command> ParseCommandLine(int argc, const char* const* argv) {
  CLI::App app("Prunes layers of neural networks on a SparseFW server.", "sparsefw-cli");
  app.formatter(HelpFormatter());
  app.require_subcommand(1);
  app.get_help_ptr()->description("print this help; behind a command, that of the command");
  app.set_version_flag("--version", std::string("sparsefw-cli ") + SPARSEFW_VERSION,
                       "print the version");
  app.footer(kExitCodes);
  Flags flags;
  AddCommands(app, flags);
  std::vector<std::string> words = Words(argc, argv);
  if (words.empty()) return UsageError("a command is required; sparsefw-cli --help lists them");
  const auto named = [&words](const CLI::App* command) { return command->get_name() == words[0]; };
  const auto chosen_first = app.get_subcommands(named);
  if (!words[0].starts_with('-') && chosen_first.empty()) {
    return UsageError(
        absl::StrFormat("there is no command \"%s\"; sparsefw-cli --help lists them", words[0]));
  }
  if (!chosen_first.empty()) SPARSEFW_RETURN_IF_ERROR(CheckValues(*chosen_first[0], words));
  try {
    std::reverse(words.begin(), words.end());  // as CLI11 wants it
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    return PrintText{(chosen.empty() ? &app : chosen[0])->help()};
  } catch (const CLI::CallForAllHelp&) {
    return PrintText{app.help("", CLI::AppFormatMode::All)};
  } catch (const CLI::CallForVersion& version) {
    return PrintText{std::string(version.what()) + "\n"};
  } catch (const CLI::ParseError& error) {
    for (const CLI::App* command : app.get_subcommands()) {
      if (const auto unknown = command->remaining(); !unknown.empty()) {
        return UnknownArgument(*command, unknown);
      }
    }
    return UsageError(OneLine(error.what()));
  }
  return Finish(app.get_subcommands().front()->get_name(), flags);
}

}  // namespace sparsefw::cli
