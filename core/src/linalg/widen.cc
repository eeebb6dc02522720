#include "core/src/linalg/widen.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/src/linalg/widen.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sparsefw::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename Narrow, typename T>
HWY_INLINE void WidenAs(const T* from, size_t count, float* HWY_RESTRICT out, DType dtype) {
  static_assert(sizeof(Narrow) == sizeof(T));
  const hn::ScalableTag<float> wide;
  const hn::Rebind<Narrow, hn::ScalableTag<float>> narrow;
  const size_t lanes = hn::Lanes(wide);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    // The same 16 bits under Highway's name.
    const auto values = hn::LoadU(narrow, reinterpret_cast<const Narrow*>(from + i));
    hn::StoreU(hn::PromoteTo(wide, values), wide, out + i);
  }
  ConvertToFloat(from + i, dtype, count - i, out + i);
}

void WidenF16(const Half* from, size_t count, float* out) {
  WidenAs<hwy::float16_t>(from, count, out, DType::kF16);
}
void WidenBF16(const BFloat16* from, size_t count, float* out) {
  WidenAs<hwy::bfloat16_t>(from, count, out, DType::kBF16);
}

}  // namespace sparsefw::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsefw {

HWY_EXPORT(WidenF16);
HWY_EXPORT(WidenBF16);

void Widen(const Half* from, size_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(WidenF16)(from, count, out);
}
void Widen(const BFloat16* from, size_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(WidenBF16)(from, count, out);
}

}  // namespace sparsefw
#endif  // HWY_ONCE
