#include "server/app/config.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "gtest/gtest.h"
#include "server/app/settings.h"
#include "server/identity/byte_size.h"

namespace sparsefw::server {
namespace {

class ConfigTest : public ::testing::Test {
 protected:
  ~ConfigTest() override { std::filesystem::remove(file_); }
  Arguments Parse(const std::vector<std::string>& arguments) {
    return ParseArguments(arguments, [this](const std::string& name) -> std::optional<std::string> {
      const auto found = environment_.find(name);
      return found == environment_.end() ? std::nullopt : std::optional(found->second);
    });
  }
  ServerConfig MustParse(const std::vector<std::string>& arguments) {
    const Arguments result = Parse(arguments);
    EXPECT_TRUE(result.config.has_value()) << result.text;
    return result.config.value_or(ServerConfig());
  }
  void ExpectBad(const std::vector<std::string>& arguments, const std::string& words) {
    const Arguments result = Parse(arguments);
    EXPECT_FALSE(result.config.has_value());
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.text.find(words), std::string::npos) << result.text;
    EXPECT_EQ(std::count(result.text.begin(), result.text.end(), '\n'), 1) << result.text;
  }
  std::string WriteFile(const std::string& content) {
    std::ofstream(file_) << content;
    return file_;
  }

  std::map<std::string, std::string> environment_{{"HOME", "/home/x"}};
  const std::string file_ =
      (std::filesystem::temp_directory_path() / ("sparsefw-config-" + std::to_string(getpid())))
          .string();
};

TEST_F(ConfigTest, Defaults) {
  const ServerConfig config = MustParse({});
  EXPECT_EQ(config.listen, "127.0.0.1:50051");
  EXPECT_EQ(config.metrics_listen, "127.0.0.1:9464");
  EXPECT_EQ(config.device, "auto");
  EXPECT_EQ(config.tensors.budget_bytes, int64_t{8} << 30);
  EXPECT_EQ(config.staging_memory_bytes, int64_t{512} << 20);
  EXPECT_EQ(config.drain_grace, absl::Seconds(30));
  EXPECT_EQ(config.fetch_grace, absl::Seconds(10));
  EXPECT_EQ(config.gpu_metrics_period, absl::Seconds(5));
  EXPECT_EQ(config.solve_memory_bytes, 0) << "from the machine";
  EXPECT_EQ(config.state_dir, "/home/x/.local/state/sparsefw-server");
  EXPECT_EQ(config.tensors.spool_dir, "/home/x/.local/state/sparsefw-server/spool");
  EXPECT_EQ(config.devices.memory_bytes, 0);
  EXPECT_EQ(config.devices.memory_share, 0.9);
  EXPECT_EQ(config.devices.streams, 4);
  EXPECT_EQ(config.store, "sqlite");
  EXPECT_EQ(config.jobs.max_attempts, 3);
  EXPECT_EQ(config.tensors.disk_budget_bytes, 0) << "what the disk has";
  EXPECT_EQ(config.tensors.tensor_ttl, absl::ZeroDuration()) << "for ever";
  EXPECT_EQ(config.tensors.max_tensors, 100'000);
}

TEST_F(ConfigTest, WhereAndHowLongThingsAreKept) {
  EXPECT_EQ(MustParse({"--store", "memory"}).store, "memory");
  EXPECT_FALSE(MustParse({}).tensors.discard_unmatched);
  EXPECT_TRUE(MustParse({"--discard-unmatched"}).tensors.discard_unmatched);
  ExpectBad({"--store", "paper"}, "must be one of sqlite, memory; got paper");
  EXPECT_EQ(MustParse({"--checkpoint-period", "5s"}).checkpoint_period, absl::Seconds(5));
  EXPECT_EQ(MustParse({"--max-attempts", "1"}).jobs.max_attempts, 1);
  ExpectBad({"--max-attempts", "0"}, "--max-attempts");
  EXPECT_EQ(MustParse({"--disk-budget", "100GiB"}).tensors.disk_budget_bytes, int64_t{100} << 30);
  EXPECT_EQ(MustParse({"--tensor-ttl", "36h"}).tensors.tensor_ttl, absl::Hours(36));
  ExpectBad({"--disk-budget", "0"}, "--disk-budget");
  ExpectBad({"--max-tensors", "0"}, "--max-tensors");
  ExpectBad({"--tensor-ttl", "-1s"}, "--tensor-ttl");
}

TEST_F(ConfigTest, DeviceMemoryIsASizeOrAShare) {
  EXPECT_EQ(MustParse({"--device-memory", "2GiB"}).devices.memory_bytes, int64_t{2} << 30);
  EXPECT_EQ(MustParse({"--device-memory", "50%"}).devices.memory_share, 0.5);
  EXPECT_EQ(MustParse({"--streams-per-device", "2"}).devices.streams, 2);
  environment_["SPARSEFW_DEVICE_MEMORY"] = "2GiB";
  EXPECT_EQ(MustParse({"--device-memory", "100%"}).devices.memory_bytes, 0) << "the flag wins";
  environment_.erase("SPARSEFW_DEVICE_MEMORY");
  for (const char* bad : {"0%", "101%", "1.5%", "%", "much", "0", "-1"}) {
    ExpectBad({"--device-memory", bad}, "must be a size like 40GiB or a share from 1% to 100%");
  }
  ExpectBad({"--streams-per-device", "0"}, "--streams-per-device");
}

TEST_F(ConfigTest, EveryFlagIsTaken) {
  const ServerConfig config = MustParse({"--listen",
                                         "0.0.0.0:1",
                                         "--metrics-listen=[::1]:2",
                                         "--state-dir",
                                         "/s",
                                         "--spool-dir",
                                         "/p",
                                         "--device",
                                         "cuda:0,1",
                                         "--workers",
                                         "3",
                                         "--job-threads",
                                         "2",
                                         "--io-threads",
                                         "5",
                                         "--host-memory",
                                         "2GiB",
                                         "--staging-memory",
                                         "64MiB",
                                         "--max-tensor-bytes",
                                         "1000",
                                         "--max-tensors",
                                         "17",
                                         "--max-queued-jobs",
                                         "7",
                                         "--max-job-bytes",
                                         "64MiB",
                                         "--max-result-ttl",
                                         "48h",
                                         "--connection-memory",
                                         "3GiB",
                                         "--peer-memory",
                                         "1GiB",
                                         "--solve-memory",
                                         "6GiB",
                                         "--starvation-limit",
                                         "90s",
                                         "--drain-grace",
                                         "1m30s",
                                         "--upload-idle-ttl",
                                         "5s",
                                         "--gc-interval",
                                         "250ms",
                                         "--gpu-metrics-period",
                                         "1m",
                                         "--log-level",
                                         "debug",
                                         "--log-format",
                                         "json"});
  EXPECT_EQ(config.listen, "0.0.0.0:1");
  EXPECT_EQ(config.metrics_listen, "[::1]:2");
  EXPECT_EQ(config.state_dir, "/s");
  EXPECT_EQ(config.tensors.spool_dir, "/p");
  EXPECT_EQ(config.device, "cuda:0,1");
  EXPECT_EQ(config.jobs.workers, 3);
  EXPECT_EQ(config.job_threads, 2);
  EXPECT_EQ(config.io_threads, 5);
  EXPECT_EQ(config.tensors.budget_bytes, int64_t{2} << 30);
  EXPECT_EQ(config.staging_memory_bytes, 64 << 20);
  EXPECT_EQ(config.tensors.max_tensor_bytes, 1000);
  EXPECT_EQ(config.jobs.starvation_limit, absl::Seconds(90));
  EXPECT_EQ(config.jobs.max_queued_jobs, 7);
  EXPECT_EQ(config.tensors.max_tensors, 17);
  EXPECT_EQ(config.jobs.max_job_bytes, 64 << 20);
  EXPECT_EQ(config.jobs.max_result_ttl, absl::Hours(48));
  EXPECT_EQ(config.connection_memory_bytes, int64_t{3} << 30);
  EXPECT_EQ(config.peer_memory_bytes, int64_t{1} << 30);
  EXPECT_EQ(config.solve_memory_bytes, int64_t{6} << 30);
  ExpectBad({"--peer-memory", "3GiB"}, "must be at most --connection-memory");
  EXPECT_EQ(config.drain_grace, absl::Seconds(90));
  EXPECT_EQ(config.tensors.upload_idle_ttl, absl::Seconds(5));
  EXPECT_EQ(config.gc_interval, absl::Milliseconds(250));
  EXPECT_EQ(config.gpu_metrics_period, absl::Minutes(1));
  EXPECT_EQ(config.log_level, "debug");
  EXPECT_EQ(config.log_format, "json");
}

TEST_F(ConfigTest, AKeyOfTheFileHasOneValue) {
  for (const auto& [line, words] : std::map<std::string, std::string>{
           {"drain-grace = 1m 30s", "drain-grace must have one value, in quotes"},
           {"device = cuda:0,1", "device must have one value"},
           {"workers = [4,2]", "workers must have one value"},
           {"workers = []", "workers must have one value"},
           {"listen = [::1]:50051", "listen must have one value, in quotes if it has a bracket"},
           {"spool-dir = [/tmp/x\ntokens = \"/no/tokens\"", "spool-dir must have one value"},
           {"host-memory = \"8GiB\" 3", "host-memory must have one value"},
           {"spool-dir = /tmp/my spool", "got /tmp/my spool"},
           {"spool-dir = \"/tmp/a#b\"", "spool-dir must have a value without \"#\""},
           {"spool-dir = /tmp/a#b", "spool-dir must have a value without \"#\""},
           {"spool-dir = \"/tmp/a", "spool-dir must have a value with two quotes"},
           {"spool-dir = \"/tmp/my back\\\"", "spool-dir must have a value without backslashes"},
           {"workers = 2\n--workers = 3", "a line must be key = value"},
           {"insecure", "a line must be key = value, or begin with #; got insecure"},
           {"insecure =", "insecure must have a value; got none"},
           {"insecure = # later", "insecure must have a value; got none"},
           {"[server]", "a line must be key = value"},
           {"workers = 2\njob-threads = 3\nworkers = 3", "workers must have one value"}}) {
    ExpectBad({"--config", WriteFile(line + "\n")}, words);
  }
  const auto quoted = MustParse(
      {"--config", WriteFile("drain-grace = \"1m30s\"\nspool-dir = '/tmp/my "
                             "spool'\ndevice = \"cuda:0,1\" # both\ninsecure = true # now\n"
                             "; old\nlisten = \"[::1]:0\"\n")});
  EXPECT_EQ(quoted.tensors.spool_dir, "/tmp/my spool");
  EXPECT_EQ(quoted.device, "cuda:0,1");
  EXPECT_TRUE(quoted.insecure);
  EXPECT_EQ(quoted.listen, "[::1]:0");
}

TEST_F(ConfigTest, AFileThatCannotBeReadIsRefused) {
  ExpectBad({"--config", "/proc/self/mem"}, "--config: the file cannot be read");
}

TEST_F(ConfigTest, AnEmptyNameOfAFileIsRefused) {
  for (const char* flag :
       {"--tokens", "--tenants", "--tls-client-ca", "--tls-cert", "--tls-key", "--config"}) {
    ExpectBad({flag, ""}, "must name a file; got an empty name");
  }
  ExpectBad({"--config", WriteFile("tokens = \"\"\n")}, "must name a file");
  for (const char* name : {"TOKENS", "TENANTS", "TLS_CLIENT_CA", "TLS_CERT", "TLS_KEY", "CONFIG"}) {
    environment_ = {{std::string("SPARSEFW_") + name, ""}};
    ExpectBad({}, "must name a file; got an empty name");
  }
  environment_ = {{"SPARSEFW_WORKERS", ""}};
  MustParse({});
}

TEST_F(ConfigTest, FlagBeatsEnvironmentBeatsFile) {
  const std::string file = WriteFile("workers = 2\nhost-memory = 1GiB\nlisten = \"127.0.0.1:7\"\n");
  EXPECT_EQ(MustParse({"--config", file}).jobs.workers, 2);
  EXPECT_EQ(MustParse({"--config", file}).listen, "127.0.0.1:7");
  EXPECT_EQ(MustParse({"--config", file}).tensors.budget_bytes, 1 << 30);
  environment_["SPARSEFW_WORKERS"] = "3";
  environment_["SPARSEFW_HOST_MEMORY"] = "3GiB";
  EXPECT_EQ(MustParse({"--config", file}).jobs.workers, 3);
  EXPECT_EQ(MustParse({"--config", file}).tensors.budget_bytes, int64_t{3} << 30);
  EXPECT_EQ(MustParse({"--config", file, "--workers", "4"}).jobs.workers, 4);
  environment_["SPARSEFW_CONFIG"] = file;
  environment_.erase("SPARSEFW_WORKERS");
  EXPECT_EQ(MustParse({}).jobs.workers, 2);
}

TEST_F(ConfigTest, BadUsageNamesTheFlag) {
  ExpectBad({"--no-such-flag"}, "no-such-flag");
  ExpectBad({"stray"}, "stray");
  ExpectBad({"--workers", "0"}, "--workers");
  ExpectBad({"--workers", "two"}, "--workers");
  ExpectBad({"--job-threads", "-1"}, "--job-threads");
  ExpectBad({"--listen", "nowhere"}, "must be HOST:PORT");
  ExpectBad({"--listen", "127.0.0.1:70000"}, "--listen");
  ExpectBad({"--host-memory", "8 gigs"}, "--host-memory");
  ExpectBad({"--host-memory", "8 gigs"}, "must be a size of at least 1 bytes");
  ExpectBad({"--staging-memory", "1MiB"}, "at least 4194304 bytes");
  ExpectBad({"--drain-grace", "soon"}, "must be a duration like 30s or 5m; got soon");
  ExpectBad({"--gpu-metrics-period", "99ms"}, "must be 0 (off) or at least 100ms; got 99ms");
  ExpectBad({"--gpu-metrics-period=-1s"}, "must be a duration like 30s or 5m; got -1s");
  ExpectBad({"--gpu-metrics-period", "often"}, "must be a duration like 30s or 5m; got often");
  ExpectBad({"--gc-interval", "0"}, "--gc-interval: must be above 0; got 0");
  ExpectBad({"--upload-idle-ttl", "0s"}, "--upload-idle-ttl: must be above 0; got 0s");
  ExpectBad({"--device", "cuda:0,0"}, "names cuda:0 twice; got cuda:0,0");
  ExpectBad({"--device", "cuda:0,x"}, "which \"x\" is not; got cuda:0,x");
  ExpectBad({"--device", "tpu"}, "must be auto, cpu, reference, cuda or cuda:N[,N]; got tpu");
  ExpectBad({"--log-level", "loud"}, "debug, info, warning, error");
  ExpectBad({"--config", "/no/such/file"}, "/no/such/file");
  ExpectBad({"--config", WriteFile("workers = 2\nwrkers = 2\n")},
            "--config " + file_ + ": wrkers is no key of version");
  ExpectBad({"--config", WriteFile("workers = 0\n")}, "--workers");
  environment_["SPARSEFW_WORKERS"] = "many";
  ExpectBad({}, "--workers");
}

TEST_F(ConfigTest, Identity) {
  const ServerConfig plain = MustParse({});
  EXPECT_TRUE(plain.tls_cert.empty() && plain.tokens.empty() && plain.tenants.empty());
  EXPECT_FALSE(plain.insecure || plain.insecure_metrics);
  EXPECT_EQ(plain.max_connections, 0);
  environment_["SPARSEFW_TOKENS"] = "t";
  const ServerConfig config =
      MustParse({"--tls-cert", "c", "--tls-key", "k", "--tls-client-ca", "a", "--tenants", "n",
                 "--insecure", "--insecure-metrics", "--max-connections", "100"});
  EXPECT_EQ(config.tls_cert, "c");
  EXPECT_EQ(config.tls_key, "k");
  EXPECT_EQ(config.tls_client_ca, "a");
  EXPECT_EQ(config.tokens, "t");
  EXPECT_EQ(config.tenants, "n");
  EXPECT_TRUE(config.insecure && config.insecure_metrics);
  EXPECT_EQ(config.max_connections, 100);
  EXPECT_TRUE(MustParse({"--config", WriteFile("insecure = true\n")}).insecure);
  ExpectBad({"--tls-cert", "c"}, "--tls-cert and --tls-key must be given together");
  ExpectBad({"--tls-key", "k"}, "--tls-cert and --tls-key must be given together");
  ExpectBad({"--tls-client-ca", "a"}, "--tls-client-ca needs");
  ExpectBad({"--max-connections", "-1"}, "--max-connections");
}

TEST_F(ConfigTest, HelpIsNotAnError) {
  const Arguments result = Parse({"--help"});
  EXPECT_FALSE(result.config.has_value());
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.text.find("--host-memory"), std::string::npos);
}

TEST(ParseBytesTest, KnowsItsUnitsAndItsLimits) {
  EXPECT_EQ(ParseBytes("1"), 1);
  EXPECT_EQ(ParseBytes("8GiB"), int64_t{8} << 30);
  EXPECT_EQ(ParseBytes("8 gib"), int64_t{8} << 30);
  EXPECT_EQ(ParseBytes("2TB"), 2'000'000'000'000);
  for (const char* bad :
       {"", "0", "-1", "1.5GiB", "GiB", "1XB", "9999999999999TiB", "99999999999999999999"}) {
    EXPECT_EQ(ParseBytes(bad), std::nullopt) << bad;
  }
}

class SettingsTest : public ConfigTest {
 protected:
  const v1::Setting& Of(const ServerConfig& config, const std::string& name) {
    for (const v1::Setting& setting : config.settings) {
      if (setting.name() == name) return setting;
    }
    ADD_FAILURE() << name << " is no setting";
    return config.settings.front();
  }
  void Expect(const ServerConfig& config, const std::string& name, const std::string& value,
              v1::Setting::Source source) {
    EXPECT_EQ(Of(config, name).value(), value) << name;
    EXPECT_EQ(Of(config, name).source(), source) << name;
  }
};

TEST_F(SettingsTest, DefaultsAreThoseThatAreInForce) {
  const ServerConfig config = MustParse({});
  for (const auto& [name, value] : std::map<std::string, std::string>{
           {"listen", "127.0.0.1:50051"},
           {"host-memory", "8GiB"},
           {"staging-memory", "512MiB"},
           {"device-memory", "90%"},
           {"max-queued-jobs", "10000"},
           {"max-job-bytes", "1GiB"},
           {"max-result-ttl", "8760h"},
           {"drain-grace", "30s"},
           {"checkpoint-period", "1m"},
           {"insecure", "false"},
           {"tokens", ""},
           {"log-format", "text"},
           {"solve-memory", "80% of the machine's"},
           {"disk-budget", "what the file system has"},
           {"state-dir", "/home/x/.local/state/sparsefw-server"},
           {"spool-dir", "/home/x/.local/state/sparsefw-server/spool"}}) {
    Expect(config, name, value, v1::Setting::SOURCE_DEFAULT);
  }
}

TEST_F(SettingsTest, SayWhereTheyComeFrom) {
  environment_["SPARSEFW_WORKERS"] = "3";
  environment_["SPARSEFW_IO_THREADS"] = "7";
  const ServerConfig config =
      MustParse({"--config", WriteFile("host-memory = 1GiB\nworkers = 9\ninsecure = true\n"),
                 "--io-threads=2", "--max-queued-jobs", "5", "--insecure-metrics"});
  Expect(config, "workers", "3", v1::Setting::SOURCE_ENVIRONMENT);
  Expect(config, "host-memory", "1GiB", v1::Setting::SOURCE_FILE);
  Expect(config, "insecure", "true", v1::Setting::SOURCE_FILE);
  Expect(config, "io-threads", "2", v1::Setting::SOURCE_FLAG);
  Expect(config, "max-queued-jobs", "5", v1::Setting::SOURCE_FLAG);
  Expect(config, "insecure-metrics", "true", v1::Setting::SOURCE_FLAG);
  Expect(config, "max-connections", "0", v1::Setting::SOURCE_DEFAULT);
  EXPECT_EQ(config.jobs.workers, 3);
  EXPECT_TRUE(config.insecure);
}

// A new flag must be put in one of the lists of settings.cc.
TEST_F(SettingsTest, ForEveryFlagItIsDecidedWhoMaySeeIt) {
  for (const v1::Setting& setting : MustParse({}).settings) {
    EXPECT_NE(AudienceOf(setting.name()), Audience::kUndecided) << setting.name();
  }
}

TEST_F(SettingsTest, ClientsSeeNoFilesAndAddresses) {
  const ServerConfig config =
      MustParse({"--tokens", "/secret/tokens", "--state-dir", "/secret/state", "--tls-cert",
                 "/secret/c", "--tls-key", "/secret/k", "--listen", "127.0.0.1:99"});
  const std::vector<v1::Setting> shown = SettingsForClients(config.settings);
  EXPECT_GT(shown.size(), 15U);
  for (const v1::Setting& setting : shown) {
    EXPECT_EQ(setting.value().find('/'), std::string::npos) << setting.name();
    EXPECT_EQ(setting.value().find(':'), std::string::npos) << setting.name();
  }
}

TEST(ByteSizeTest, IsWrittenAsItIsRead) {
  for (const auto& [bytes, text] : std::map<int64_t, std::string>{{1, "1"},
                                                                  {1500, "1500"},
                                                                  {1536, "1536"},
                                                                  {2048, "2KiB"},
                                                                  {int64_t{8} << 30, "8GiB"},
                                                                  {int64_t{5} << 50, "5120TiB"}}) {
    EXPECT_EQ(FormatBytes(bytes), text);
    EXPECT_EQ(ParseBytes(text), bytes);
  }
  EXPECT_EQ(FormatBytes(0), "0");
}

}  // namespace
}  // namespace sparsefw::server
