// Lists every kernel: RC_KERNEL(name, its parameters, what it runs). The including file defines
// RC_KERNEL, and selects modules by RC_MODULE_*. A driver compiles a complete module when it is
// first requested, which takes up to a second. Operations that are not listed use the kernels of
// other operations (reduce_entry in launch.hpp): a complex sum uses the sum of floats.
#define RC_REDUCE(dtype, op, ...) RC_KERNEL(rc_reduce_##dtype##_##op, ReduceParameters, (reduce<__VA_ARGS__>))
#define RC_PACK(from, to, ...) RC_KERNEL(rc_pack_##from##_##to, PackParameters, (pack<__VA_ARGS__>))

// `Order` is the lane of min and max without scaling.
#define RC_FLOATING(dtype, Lane, Order, Format)          \
  RC_REDUCE(dtype, sum, Lane, Lane, Kind::sum)           \
  RC_REDUCE(dtype, min, Order, Lane, Kind::min)          \
  RC_REDUCE(dtype, max, Order, Lane, Kind::max)          \
  RC_REDUCE(dtype, product, Lane, Lane, Kind::product)   \
  RC_PACK(dtype, float16, Format, HalfFormat<Float16>)   \
  RC_PACK(dtype, bfloat16, Format, HalfFormat<BFloat16>) \
  RC_PACK(dtype, float32, Format, SingleFormat)          \
  RC_PACK(dtype, float64, Format, DoubleFormat)
#if defined(RC_MODULE_FLOAT16)
RC_FLOATING(float16, HalfLane<Float16>, HalfBitsLane<Float16>, HalfFormat<Float16>)
#endif
#if defined(RC_MODULE_BFLOAT16)
RC_FLOATING(bfloat16, HalfLane<BFloat16>, HalfBitsLane<BFloat16>, HalfFormat<BFloat16>)
#endif
#if defined(RC_MODULE_FLOAT32)
RC_FLOATING(float32, FloatLane<float>, FloatLane<float>, SingleFormat)
#endif
#if defined(RC_MODULE_FLOAT64)
RC_FLOATING(float64, FloatLane<double>, FloatLane<double>, DoubleFormat)
#endif
#undef RC_FLOATING

#if defined(RC_MODULE_FILL)
RC_KERNEL(rc_fill, FillParameters, (fill))
#endif

#if defined(RC_MODULE_STRIDED)
RC_KERNEL(rc_strided, StridedParameters, (strided))
#endif

#if defined(RC_MODULE_INTEGERS)
#define RC_INTEGER(dtype, ...)                                                                 \
  RC_REDUCE(dtype, sum, IntegerLane<__VA_ARGS__>, IntegerLane<__VA_ARGS__>, Kind::sum)         \
  RC_REDUCE(dtype, min, IntegerLane<__VA_ARGS__>, IntegerLane<__VA_ARGS__>, Kind::min)         \
  RC_REDUCE(dtype, max, IntegerLane<__VA_ARGS__>, IntegerLane<__VA_ARGS__>, Kind::max)         \
  RC_REDUCE(dtype, product, IntegerLane<__VA_ARGS__>, IntegerLane<__VA_ARGS__>, Kind::product) \
  RC_PACK(dtype, dtype, IntegerFormat<__VA_ARGS__>, IntegerFormat<__VA_ARGS__>)
RC_INTEGER(int8, i8, u8)
RC_INTEGER(int16, i16, u16)
RC_INTEGER(int32, i32, u32)
RC_INTEGER(int64, i64, u64)
RC_INTEGER(uint8, u8, u8)
RC_INTEGER(uint16, u16, u16)
RC_INTEGER(uint32, u32, u32)
RC_INTEGER(uint64, u64, u64)
#undef RC_INTEGER

#define RC_LOGIC(dtype, Lane)                     \
  RC_REDUCE(dtype, land, Lane, Lane, Kind::both)  \
  RC_REDUCE(dtype, lor, Lane, Lane, Kind::either) \
  RC_REDUCE(dtype, lxor, Lane, Lane, Kind::one)
#define RC_BITS(dtype, U)                                       \
  RC_REDUCE(dtype, band, BitsLane<U>, BitsLane<U>, Kind::both)  \
  RC_REDUCE(dtype, bor, BitsLane<U>, BitsLane<U>, Kind::either) \
  RC_REDUCE(dtype, bxor, BitsLane<U>, BitsLane<U>, Kind::one)   \
  RC_LOGIC(dtype, LogicalLane<U>)
RC_BITS(uint8, u8)
RC_BITS(uint16, u16)
RC_BITS(uint32, u32)
RC_BITS(uint64, u64)
RC_LOGIC(bool, BooleanLane)
RC_PACK(bool, bool, BooleanFormat, BooleanFormat)
#undef RC_BITS
#undef RC_LOGIC
#endif

#if defined(RC_MODULE_COMPOSITES)
RC_REDUCE(complex64, product, ComplexLane<float>, ComplexLane<float>, Kind::product)
RC_REDUCE(complex128, product, ComplexLane<double>, ComplexLane<double>, Kind::product)

#define RC_LOCATED(dtype, ...)                                                            \
  RC_REDUCE(dtype, minloc, LocatedLane<__VA_ARGS__>, LocatedLane<__VA_ARGS__>, Kind::min) \
  RC_REDUCE(dtype, maxloc, LocatedLane<__VA_ARGS__>, LocatedLane<__VA_ARGS__>, Kind::max)
RC_LOCATED(int16_int32, i16, i32, u32)
RC_LOCATED(int32_int32, i32, i32, u32)
RC_LOCATED(int64_int32, i64, i32, u64)
RC_LOCATED(float32_int32, float, i32, u32)
RC_LOCATED(float64_int32, double, i32, u64)
RC_LOCATED(int16_int64, i16, i64, u64)
RC_LOCATED(int32_int64, i32, i64, u64)
RC_LOCATED(int64_int64, i64, i64, u64)
RC_LOCATED(float32_int64, float, i64, u64)
RC_LOCATED(float64_int64, double, i64, u64)
#undef RC_LOCATED
#endif

#undef RC_REDUCE
#undef RC_PACK
