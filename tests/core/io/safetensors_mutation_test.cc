// Thousands of damaged files: each is refused, or what is handed out is consistent.
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sparsefw/safetensors.h"
#include "tests/core/io/file_builder.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_folder.h"

namespace sparsefw {
namespace {

constexpr uint64_t kSeed = 20240917;

std::vector<std::string> ValidFiles() {
  return {
      FileOf("{}", ""),
      FileOf(R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", std::string(24, 'a')),
      FileOf(R"({"__metadata__":{"format":"pt","k\u00e4":"v\n"},)"
             R"("a":{"dtype":"F16","shape":[4],"data_offsets":[10,18]},)"
             R"("b":{"dtype":"U8","shape":[5,2],"data_offsets":[0,10]},)"
             R"("z":{"dtype":"BOOL","shape":[0],"data_offsets":[10,10]}})",
             std::string(18, 'b')),
  };
}

std::string Mutate(std::string bytes, std::mt19937_64& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  // Characters that change what a header means, not only whether it parses.
  static constexpr std::string_view kTelling = "0123456789{}[]\",:-+.eE\\ \xFF";
  const size_t edits = 1 + below(4);
  for (size_t i = 0; i < edits && !bytes.empty(); ++i) {
    const size_t at = below(bytes.size());
    switch (below(7)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes[at] = kTelling[below(kTelling.size())];
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.erase(at, 1 + below(8));
        break;
      case 4:
        bytes.insert(at, 1 + below(8), kTelling[below(kTelling.size())]);
        break;
      case 5:
        bytes.insert(at, bytes.substr(below(bytes.size()), below(60)));
        break;
      case 6:  // the length again right, so that the damage reaches the parser
        if (bytes.size() >= 8) {
          const size_t length = bytes.find_last_of('}');
          if (length != std::string::npos && length >= 8) {
            bytes.replace(0, 8, LengthField(length - 7));
          }
        }
        break;
    }
  }
  return bytes;
}

// A new file each time: cutting an old one short waits for the disk on some file systems.
void Replace(const std::string& path, std::string_view bytes) {
  std::filesystem::remove(path);
  testing::WriteFile(path, bytes);
}

void ExpectConsistent(const SafetensorsFile& file, size_t file_size) {
  std::set<std::string> names;
  size_t total = 0;
  for (const SafetensorsEntry& entry : file.entries()) {
    EXPECT_TRUE(names.insert(entry.name).second);
    total += entry.bytes.size();
    ASSERT_LE(entry.bytes.size(), file_size);
    // Touches every byte: one outside the mapping would be a crash.
    std::accumulate(entry.bytes.begin(), entry.bytes.end(), 0U, [](unsigned sum, std::byte byte) {
      return sum + std::to_integer<unsigned>(byte);
    });
    const auto found = file.Find(entry.name);
    ASSERT_THAT(found, testing::IsOk());
    EXPECT_TRUE(entry.name.empty() || *found == &entry);
    if (const auto matrix = entry.AsMatrix(); matrix.ok()) {
      EXPECT_EQ(static_cast<size_t>(matrix->size()) * SizeOf(matrix->dtype()), entry.bytes.size());
    }
  }
  EXPECT_LE(total, file_size);
}

TEST(SafetensorsMutation, DamagedFilesNeverCrash) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  const testing::TempFolder folder;
  const std::string path = folder.File("damaged.safetensors");
  const std::vector<std::string> valid = ValidFiles();
  for (const std::string& bytes : valid) {
    Replace(path, bytes);
    SPARSEFW_ASSERT_OK(SafetensorsFile::Open(path));
  }
  int accepted = 0;
  int refused = 0;
  for (int round = 0; round < 12'000; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const std::string bytes = Mutate(valid[random() % valid.size()], random);
    Replace(path, bytes);
    const auto file = SafetensorsFile::Open(path);
    if (file.ok()) {
      ++accepted;
      ExpectConsistent(**file, bytes.size());
    } else {
      ++refused;
      ASSERT_THAT(file,
                  testing::StatusIs(absl::StatusCode::kInvalidArgument, "FILE_INVALID", path));
    }
    if (HasFatalFailure()) return;
  }
  // Neither all nor nothing: the mutations reach both sides of the checks.
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 5'000);
}

TEST(SafetensorsMutation, EveryTruncationIsRefused) {
  const testing::TempFolder folder;
  const std::string path = folder.File("short.safetensors");
  for (const std::string& whole : ValidFiles()) {
    for (size_t size = 0; size < whole.size(); ++size) {
      Replace(path, whole.substr(0, size));
      EXPECT_THAT(SafetensorsFile::Open(path),
                  testing::StatusIs(absl::StatusCode::kInvalidArgument, "FILE_INVALID", path))
          << size << " of " << whole.size() << " bytes";
    }
  }
}

}  // namespace
}  // namespace sparsefw
