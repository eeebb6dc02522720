sparsefw_library(base
  SOURCES base/crc32c.cc base/dtype.cc base/mask.cc base/matrix.cc base/names.cc
          base/reason.cc base/steady_time.cc base/traceparent.cc
  LIBRARIES absl::status absl::statusor absl::strings absl::str_format absl::cord
  PRIVATE_LIBRARIES PkgConfig::isal)
sparsefw_public_headers(base ${PROJECT_SOURCE_DIR}/core/include)
target_compile_definitions(sparsefw_base PUBLIC
  $<BUILD_INTERFACE:SPARSEFW_VERSION="${PROJECT_VERSION}">)
