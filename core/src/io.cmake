sparsefw_library(io
  SOURCES io/safetensors_file.cc io/safetensors_format.cc
          io/safetensors_header.cc io/safetensors_writer.cc
  LIBRARIES sparsefw::base
  PRIVATE_LIBRARIES absl::cleanup $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>)
