// Sequences of CreateUpload, AccumulateGram, GetUpload, DeleteUpload, expiry and restarts.
#include <string>
#include <variant>

#include "sparsefw/crc32c.h"
#include "tests/fuzz/upload_sequence.h"

namespace {

using namespace sparsefw;  // NOLINT: one file

struct Messages {
  using Request = v1::AccumulateGramRequest;
  static constexpr bool kMayGoBack = false;

  static std::string Create(server::TensorStore& store, fuzz::Input& input) {
    constexpr DType kActivations[] = {DType::kF32, DType::kF16, DType::kBF16};
    const unsigned kind = input.Byte();
    const server::GramSpec spec{input.Byte() % 8 + int64_t{1}, kActivations[kind % 3],
                                (kind & 16U) != 0 ? DType::kF64 : DType::kF32};
    const auto created = store.CreateUpload(spec, "", {"default", "fuzz"});
    if (!created.ok()) return "";
    return std::get<server::UploadInfo>(*created).name;
  }

  static void SetSpec(fuzz::Input& input, v1::AccumulateGramRequest* request) {
    v1::GramSpec& spec = *request->mutable_spec();
    spec.set_d_in(input.Byte() % 16);
    spec.set_activation_dtype(static_cast<v1::DataType>(input.Byte() % 8));
    spec.set_gram_dtype(static_cast<v1::DataType>(input.Byte() % 8));
  }

  static void SetChunk(fuzz::Input& input, int64_t next, v1::AccumulateGramRequest* request) {
    const unsigned kind = input.Byte();
    request->set_data(std::string(input.Text(input.Byte())));
    int64_t offset = next;
    if ((kind & 3U) == 1) offset -= input.Byte() % 8;
    if ((kind & 3U) == 2) offset += input.Byte() % 8;
    if ((kind & 31U) == 3) offset = static_cast<int64_t>(uint64_t{input.Short()} << 48U);
    request->set_token_offset(offset);
    const uint32_t crc = Crc32c(std::as_bytes(std::span(request->data())));
    request->set_crc32c((kind & 64U) != 0 ? crc + 1 : crc);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::UploadSequence<server::AccumulateGramStream, Messages>(data, size).Run();
  return 0;
}
