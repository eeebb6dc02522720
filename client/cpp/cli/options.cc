#include "client/cpp/cli/options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/inputs.h"
#include "client/cpp/cli/names.h"
#include "client/cpp/cli/submit_flags.h"
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
  int64_t limit = 0;
};

CLI::App& AddCommand(CLI::App& app, const char* name, const char* description, Flags& flags) {
  CLI::App& command = *app.add_subcommand(name, description);
  // Not CLI11's envname: it would also be read by the commands that were not given.
  command.add_option("--server", flags.common.server,
                     "HOST:PORT of the server (or SPARSEFW_SERVER; default 127.0.0.1:50051)");
  command.add_option("--timeout", flags.common_text.timeout,
                     "how long to try to connect (default 5s)");
  command.add_option("--retry-for", flags.common_text.retry_for,
                     "how long to try again after a connection broke (default 1m)");
  command.add_flag("--json", flags.common.json, "print one JSON object");
  return command;
}

CLI::App& AddJobCommand(CLI::App& app, const char* name, const char* description, Flags& flags) {
  CLI::App& command = AddCommand(app, name, description, flags);
  command.add_option("JOB", flags.job, "jobs/<id>")->required();
  return command;
}

void AddOutputFlags(CLI::App& command, OutputOptions& output) {
  command.add_option("--out", output.out, "FILE for the mask");
  command.add_option("--out-weights", output.out_weights, "FILE for the pruned weight");
  command.add_flag("--keep-tensors", output.keep_tensors,
                   "leave the uploaded tensors on the server when the job has ended");
}

void AddCommands(CLI::App& app, Flags& flags) {
  CLI::App& submit = AddCommand(app, "submit", "prune a layer", flags);
  AddSubmitFlags(submit, flags.submit_text, flags.submit);
  AddOutputFlags(submit, flags.output);
  AddJobCommand(app, "status", "print where a job stands", flags);
  AddJobCommand(app, "watch", "follow a job to its end", flags);
  AddOutputFlags(AddJobCommand(app, "fetch", "wait for a job and download its mask", flags),
                 flags.output);
  AddJobCommand(app, "cancel", "stop a job; its best mask so far stays", flags);
  AddJobCommand(app, "delete", "remove a job that has ended, with its mask", flags);

  CLI::App& list = AddCommand(app, "list", "list jobs, newest first", flags);
  list.add_option("--state", flags.states, "only jobs in this state; may be repeated")
      ->allow_extra_args(false);
  list.add_option("--label", flags.labels, "KEY=VALUE that must match; may be repeated")
      ->allow_extra_args(false);
  list.add_option("--limit", flags.limit, "at most so many (default: all)");

  CLI::App& gram = AddCommand(app, "gram", "sum activations into a Gram matrix", flags);
  gram.add_option("--activations", flags.gram.activations, "FILE[:TENSOR] [tokens, d_in]")
      ->required();
  gram.add_option("--out", flags.gram.out, "FILE for the Gram matrix")->required();
  gram.add_option("--dtype", flags.gram_dtype, "F32 (default) or F64");
  gram.add_flag("--keep-tensors", flags.gram.keep_tensors, "leave the Gram on the server, too");

  AddCommand(app, "info", "print what the server is and can", flags);
}

absl::Status FinishCommon(Flags& flags) {
  if (flags.common.server.empty()) {
    const char* server = std::getenv("SPARSEFW_SERVER");  // NOLINT: no other thread yet
    flags.common.server = server != nullptr && *server != '\0' ? server : "127.0.0.1:50051";
  }
  if (!flags.common_text.timeout.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(flags.common.timeout,
                              ParseTimeSpan("--timeout", flags.common_text.timeout));
  }
  if (!flags.common_text.retry_for.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(flags.common.retry_for,
                              ParseTimeSpan("--retry-for", flags.common_text.retry_for));
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
    SPARSEFW_ASSIGN_OR_RETURN(const v1::JobState parsed, ParseJobState("--state", state));
    list.states.push_back(parsed);
  }
  SPARSEFW_ASSIGN_OR_RETURN(list.labels, ParseLabels(flags.labels));
  if (flags.limit < 0) {
    return UsageError(absl::StrFormat("--limit must be at least 0; got %d", flags.limit));
  }
  list.limit = flags.limit;
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
  if (command == "status") return OfJob<StatusOptions>(flags);
  if (command == "watch") return OfJob<WatchOptions>(flags);
  if (command == "cancel") return OfJob<CancelOptions>(flags);
  if (command == "delete") return OfJob<DeleteOptions>(flags);
  FetchOptions fetch = OfJob<FetchOptions>(flags);
  fetch.output = flags.output;
  if (fetch.output.out.empty()) return UsageError("--out is required");
  SPARSEFW_RETURN_IF_ERROR(CheckOutput(fetch.output));
  return fetch;
}

// One sentence on one line, without the library's full stop.
std::string Sentence(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '.')) text.pop_back();
  return text;
}

}  // namespace

absl::StatusOr<Command> ParseCommandLine(int argc, const char* const* argv) {
  CLI::App app("Prunes layers of neural networks on a SparseFW server.", "sparsefw-cli");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("sparsefw-cli ") + SPARSEFW_VERSION);
  Flags flags;
  AddCommands(app, flags);
  if (argc < 2) return UsageError("a command is required; sparsefw-cli --help lists them");
  const auto named = [argv](const CLI::App* command) { return command->get_name() == argv[1]; };
  if (argv[1][0] != '-' && app.get_subcommands(named).empty()) {
    return UsageError(
        absl::StrFormat("there is no command \"%s\"; sparsefw-cli --help lists them", argv[1]));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    return PrintText{(chosen.empty() ? &app : chosen[0])->help()};
  } catch (const CLI::CallForAllHelp&) {
    return PrintText{app.help("", CLI::AppFormatMode::All)};
  } catch (const CLI::CallForVersion& version) {
    return PrintText{std::string(version.what()) + "\n"};
  } catch (const CLI::ParseError& error) {
    return UsageError(Sentence(error.what()));
  }
  return Finish(app.get_subcommands().front()->get_name(), flags);
}

}  // namespace sparsefw::cli
