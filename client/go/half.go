package sparsefw

import (
	"encoding/binary"
	"math"
)

func uint16At(data []byte, i int) uint16 { return binary.LittleEndian.Uint16(data[2*i:]) }
func float32At(data []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
}
func float64At(data []byte, i int) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
}

// ToBFloat16 rounds to nearest, ties to even.
func ToBFloat16(value float32) uint16 {
	bits := math.Float32bits(value)
	if bits&0x7fffffff > 0x7f800000 { // NaN stays one
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + (bits >> 16 & 1)) >> 16)
}

// FromBFloat16 is exact.
func FromBFloat16(bits uint16) float32 { return math.Float32frombits(uint32(bits) << 16) }

// ToFloat16 rounds to IEEE binary16, to nearest, ties to even; what is too large becomes infinite.
func ToFloat16(value float32) uint16 {
	bits := math.Float32bits(value)
	sign := uint16(bits >> 16 & 0x8000)
	magnitude := bits & 0x7fffffff
	switch {
	case magnitude > 0x7f800000: // NaN
		return sign | 0x7e00
	case magnitude >= 0x477ff000: // 65520 and above
		return sign | 0x7c00
	case magnitude >= 0x38800000: // normal: 2^-14 and above
		magnitude += 0xfff + (magnitude >> 13 & 1)
		return sign | uint16((magnitude-0x38000000)>>13)
	}
	// Subnormal: a multiple of 2^-24. The sum rounds to the last bit of 0.5 in float32, which is that.
	shifted := math.Float32frombits(magnitude) + 0.5
	return sign | uint16(math.Float32bits(shifted)-math.Float32bits(0.5))
}

// FromFloat16 is exact.
func FromFloat16(bits uint16) float32 {
	sign := uint32(bits&0x8000) << 16
	exponent := uint32(bits >> 10 & 0x1f)
	fraction := uint32(bits & 0x3ff)
	switch exponent {
	case 0: // zero, subnormal
		value := float32(fraction) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(value) | sign)
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}
