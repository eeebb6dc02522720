package sparsefw_test

import (
	"math"
	"strings"
	"testing"

	sparsefw "github.com/sparsefw/sparsefw/client/go"
	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

func TestHalfPrecisionRoundTrips(t *testing.T) {
	for bits := 0; bits < 1<<16; bits++ {
		half := uint16(bits)
		if value := sparsefw.FromFloat16(half); value == value {
			if back := sparsefw.ToFloat16(value); back != half {
				t.Fatalf("binary16 %04x is %g, which is %04x", half, value, back)
			}
		} else if back := sparsefw.FromFloat16(sparsefw.ToFloat16(value)); back == back {
			t.Fatalf("binary16 %04x: NaN became %g", half, back)
		}
		if value := sparsefw.FromBFloat16(half); value == value {
			if back := sparsefw.ToBFloat16(value); back != half {
				t.Fatalf("bfloat16 %04x is %g, which is %04x", half, value, back)
			}
		} else if back := sparsefw.FromBFloat16(sparsefw.ToBFloat16(value)); back == back {
			t.Fatalf("bfloat16 %04x: NaN became %g", half, back)
		}
	}
}

func TestHalfPrecisionRoundsToNearestEven(t *testing.T) {
	for _, test := range []struct {
		value float32
		want  float32
	}{
		{1 + 1.0/2048, 1},                        // halfway: even
		{1 + 3.0/2048, 1 + 2.0/1024},             // halfway: even
		{1 + 1.1/2048, 1 + 1.0/1024},             // above
		{65519, 65504},                           // the largest
		{65520, float32(math.Inf(1))},            // halfway beyond it
		{1.0 / (1 << 24), 1.0 / (1 << 24)},       // the smallest subnormal
		{0.5 / (1 << 24), 0},                     // halfway: even
		{0.5001 / (1 << 24), 1.0 / (1 << 24)},    // above
		{1022.5 / (1 << 24), 1022.0 / (1 << 24)}, // halfway: even
		{1023.5 / (1 << 24), 1024.0 / (1 << 24)}, // halfway: the smallest normal
		{-0.1 / (1 << 24), float32(math.Copysign(0, -1))},
	} {
		got := sparsefw.FromFloat16(sparsefw.ToFloat16(test.value))
		if math.Float32bits(got) != math.Float32bits(test.want) {
			t.Errorf("%g became %g, expected %g", test.value, got, test.want)
		}
	}
	for value, want := range map[float32]uint16{1: 0x3f80, 1.00390625: 0x3f80, 1.01171875: 0x3f82, 3.4e38: 0x7f80} {
		if got := sparsefw.ToBFloat16(value); got != want {
			t.Errorf("%g is bfloat16 %04x, expected %04x", value, got, want)
		}
	}
}

func TestMasksBeginEachRowOnAByte(t *testing.T) {
	mask := sparsefw.NewMask(2, 11)
	mask.Set(0, 0, true)
	mask.Set(0, 10, true)
	mask.Set(1, 3, true)
	mask.Set(1, 3, true)
	if mask.Count() != 3 || len(mask.Bits) != 4 || mask.Bits[0] != 1 || mask.Bits[1] != 4 || mask.Bits[2] != 8 {
		t.Errorf("%v", mask.Bits)
	}
	values := make([]float32, 22)
	for i := range values {
		values[i] = float32(i + 1)
	}
	must(t, sparsefw.Apply(mask, values))
	for i, keep := range mask.Bools() {
		if (values[i] != 0) != keep {
			t.Errorf("value %d is %g, kept %v", i, values[i], keep)
		}
	}
	if sparsefw.Apply(mask, values[1:]) == nil {
		t.Error("a matrix of another shape")
	}
}

func TestBytesFitTheShape(t *testing.T) {
	client := dial(t, startFake(t, &fakeServer{}))
	const half, max = math.MaxInt/2 + 1, math.MaxInt
	for _, shape := range [][2]int{{half, 2}, {half, half}, {1 << 31, 1 << 31}, {1 << 30, 1 << 32}, {max, 1}, {0, 8}, {-1, -8}, {2, 8}} {
		matrix := sparsefw.Matrix{DType: v1.DataType_DATA_TYPE_F32, Rows: shape[0], Cols: shape[1], Data: make([]byte, 32)}
		if shape[1] == 2 || shape[0] > 1<<29 {
			matrix.Data = nil // as many bytes as the product of the shape has after its overflow
		}
		_, err := client.Upload(ctx, v1.TensorKind_TENSOR_KIND_WEIGHT, matrix)
		if sparsefw.ReasonOf(err) != "CLIENT_ARGUMENT" || !strings.Contains(err.Error(), "a matrix must be ") {
			t.Errorf("%v: %v", shape, err)
		}
		_, err = client.UploadMask(ctx, &sparsefw.Mask{Rows: shape[0], Cols: shape[1], Bits: []byte{1}})
		if sparsefw.ReasonOf(err) != "CLIENT_ARGUMENT" || !strings.Contains(err.Error(), "a mask must be ") {
			t.Errorf("a mask %v: %v", shape, err)
		}
	}
	layer := smallLayer()
	layer.WarmStart = &sparsefw.Mask{Rows: 1, Cols: 8}
	_, err := client.Prune(ctx, layer, wanda(0.5), nil)
	if sparsefw.ReasonOf(err) != "CLIENT_ARGUMENT" ||
		!strings.Contains(err.Error(), "the warm start must be 1 x 8 bits, each row of whole bytes; got 0 bytes") {
		t.Errorf("%v", err)
	}
	_, err = client.UploadMask(ctx, sparsefw.NewMask(3, 9))
	must(t, err)
}
