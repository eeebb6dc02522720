// Sequences of CreateUpload, WriteTensor, GetUpload, DeleteUpload, expiry and restarts.
#include <string>
#include <variant>

#include "sparsefw/crc32c.h"
#include "tests/fuzz/upload_sequence.h"

namespace {

using namespace sparsefw;  // NOLINT: one file

struct Messages {
  using Request = v1::WriteTensorRequest;
  static constexpr bool kMayGoBack = true;

  static std::string Create(server::TensorStore& store, fuzz::Input& input) {
    const server::TensorSpec spec{server::TensorKind::kWeight, DType::kF16,
                                  input.Byte() % 64 + int64_t{1}, input.Byte() % 64 + int64_t{1},
                                  0};
    const auto created = store.CreateUpload(spec, "", {"default", "fuzz"});
    if (!created.ok()) return "";
    return std::get<server::UploadInfo>(*created).name;
  }

  static void SetSpec(fuzz::Input& input, v1::WriteTensorRequest* request) {
    v1::TensorSpec& spec = *request->mutable_spec();
    spec.set_kind(static_cast<v1::TensorKind>(input.Byte() % 8));
    spec.set_dtype(static_cast<v1::DataType>(input.Byte() % 8));
    spec.add_dims(input.Byte() % 16);
    spec.add_dims(input.Byte() % 16);
  }

  static void SetChunk(fuzz::Input& input, int64_t next, v1::WriteTensorRequest* request) {
    const unsigned kind = input.Byte();
    v1::Chunk& chunk = *request->mutable_chunk();
    chunk.set_data(std::string(input.Text(input.Byte())));
    // Mostly where the upload goes on, sometimes before, after or far away.
    int64_t offset = next;
    if ((kind & 3U) == 1) offset -= input.Byte() % 32;
    if ((kind & 3U) == 2) offset += input.Byte() % 32;
    if ((kind & 31U) == 3) offset = static_cast<int64_t>(uint64_t{input.Short()} << 48U);
    chunk.set_offset(offset);
    const uint32_t crc = Crc32c(std::as_bytes(std::span(chunk.data())));
    chunk.set_crc32c((kind & 64U) != 0 ? crc + 1 : crc);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::UploadSequence<server::WriteTensorStream, Messages>(data, size).Run();
  return 0;
}
